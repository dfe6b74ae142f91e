// What the tests of pulling share.
#ifndef STRATA_TESTS_COORDINATOR_PULL_PULL_FIXTURE_H_
#define STRATA_TESTS_COORDINATOR_PULL_PULL_FIXTURE_H_

#include <gtest/gtest.h>
#include <stdlib.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <memory>
#include <string>
#include <vector>

#include "common/status.h"
#include "coordinator/pull/curl_transport.h"
#include "coordinator/pull/model_pull.h"
#include "tests/coordinator/pull/hub_server.h"
#include "tests/eventually.h"

namespace strata::testing {

// Remembers everything; does not wait.
class RecordingObserver : public PullObserver {
 public:
  void OnProgress(const PullProgress& progress) override {
    all.push_back(progress);
    if (cancel_at_bytes != 0 && progress.done_bytes >= cancel_at_bytes) {
      cancelled = true;
    }
  }
  bool Cancelled() override { return cancelled; }
  void Wait(std::chrono::milliseconds time) override { waits_ms.push_back(time.count()); }

  std::vector<PullProgress> all;
  std::vector<int64_t> waits_ms;
  uint64_t cancel_at_bytes = 0;
  bool cancelled = false;
};

class PullTest : public ::testing::Test {
 protected:
  PullTest() {
    std::string pattern = ::testing::TempDir() + "strata_pull_XXXXXX";
    directory_ = ::mkdtemp(pattern.data());
    // On a busy machine the tests' server is slow, and must not seem to stall.
    constexpr int kPatienceMs = std::chrono::milliseconds(kGiveUpAfter).count();
    transport_ =
        MakeCurlTransport({.connect_timeout_ms = kPatienceMs, .stall_timeout_ms = kPatienceMs});
    options_.repository = "org/model";
    options_.endpoint = hub_.url();
    options_.models_dir = directory_;
    hub_.Add("config.json", "{}");
    hub_.Add("model.safetensors", Bytes(300'000));
  }
  ~PullTest() override { std::filesystem::remove_all(directory_); }

  // Bytes that differ from place to place.
  static std::string Bytes(size_t count, unsigned seed = 1) {
    std::string bytes(count, '\0');
    for (char& byte : bytes) {
      seed = seed * 1664525 + 1013904223;
      byte = static_cast<char>(seed >> 24);
    }
    return bytes;
  }

  absl::StatusOr<PulledModel> Pull() {
    hub_.Synchronize();
    auto model = PullModel(options_, *transport_, observer_);
    hub_.Synchronize();
    return model;
  }

  std::string Read(const std::string& relative) const {
    std::ifstream in(directory_ + "/" + relative, std::ios::binary);
    return {std::istreambuf_iterator<char>(in), {}};
  }
  bool Exists(const std::string& relative) const {
    return std::filesystem::exists(directory_ + "/" + relative);
  }
  // All that is in the models folder, relative, sorted.
  std::vector<std::string> Tree() const {
    std::vector<std::string> names;
    for (const auto& entry : std::filesystem::recursive_directory_iterator(directory_)) {
      names.push_back(std::filesystem::relative(entry.path(), directory_).string());
    }
    std::sort(names.begin(), names.end());
    return names;
  }

  Hub hub_;
  std::string directory_;
  std::unique_ptr<HttpTransport> transport_;
  PullOptions options_;
  RecordingObserver observer_;
};

}  // namespace strata::testing

#endif  // STRATA_TESTS_COORDINATOR_PULL_PULL_FIXTURE_H_
