# A Homebrew formula, never run: see README.md beside it. Fill in where the sources are.
class Strata < Formula
  desc "Runs language models over the machines that you already own"
  homepage "https://example.org/strata"
  license "Apache-2.0"
  head "https://example.org/strata.git", branch: "main"

  depends_on "cli11" => :build
  depends_on "cmake" => :build
  depends_on "ninja" => :build
  depends_on "nlohmann-json" => :build
  depends_on "pkg-config" => :build
  depends_on "tomlplusplus" => :build
  depends_on "abseil"
  depends_on "boost"
  depends_on "curl"
  depends_on "grpc"
  depends_on "highway"
  depends_on "openssl@3"
  depends_on "pcre2"
  depends_on "prometheus-cpp"
  depends_on "protobuf"
  depends_on "spdlog"
  depends_on "sqlite"
  depends_on "utf8proc"

  def install
    system "cmake", "-S", ".", "-B", "build", "-G", "Ninja", "-DSTRATA_TESTS=OFF",
           "-DSTRATA_KERNELS=all", *std_cmake_args
    system "cmake", "--build", "build", "--target", "strata", "strata-coordinator", "strata-worker"
    bin.install "build/bin/strata", "build/bin/strata-coordinator", "build/bin/strata-worker"
    pkgshare.install "models"
    system "python3", "deploy/documents/make_documents.py", bin, "documents"
    man1.install "documents/man/strata.1.gz"
    man8.install "documents/man/strata-coordinator.8.gz", "documents/man/strata-worker.8.gz"
    bash_completion.install Dir["documents/bash/*"]
    zsh_completion.install Dir["documents/zsh/*"]
    (etc/"strata").install "documents/coordinator.toml", "documents/worker.toml"
    pkgshare.install "deploy/macos/org.strata.coordinator.plist", "deploy/macos/org.strata.worker.plist"
  end

  def post_install
    (var/"lib/strata/coordinator").mkpath
    (var/"lib/strata/worker").mkpath
    (var/"log").mkpath
  end

  def caveats
    <<~TEXT
      To have the services run from boot on:
        sudo cp #{opt_pkgshare}/org.strata.*.plist /Library/LaunchDaemons
        sudo launchctl bootstrap system /Library/LaunchDaemons/org.strata.coordinator.plist
        sudo launchctl bootstrap system /Library/LaunchDaemons/org.strata.worker.plist
    TEXT
  end

  test do
    assert_match version.to_s, shell_output("#{bin}/strata --version") if build.stable?
    assert_match "Usage", shell_output("#{bin}/strata --help")
  end
end
