// Runs a fuzz target without libFuzzer, the same way each time:
//   TARGET FOLDER [RUNS]   every file of a corpus, then RUNS mutations of them
//   TARGET FILE...         these inputs: a finding again
// A crash leaves its input in the file finding-TARGET of the present folder.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <random>
#include <string>
#include <vector>

#include "tests/fuzz/input.h"

namespace {

constexpr size_t kMaxInput = 64 << 10;
constexpr rlim_t kMaxMemory = rlim_t{2} << 30;

// What runs now, for the signal handler.
const char* current_data = nullptr;
size_t current_size = 0;
std::string finding_path;  // NOLINT(runtime/string): lives as long as the process.

void Say(const char* text) { (void)!write(STDOUT_FILENO, text, strlen(text)); }

// Only calls that a signal handler may make.
void KeepInput(int signal) {
  const int file = open(finding_path.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0644);
  if (file >= 0) {
    (void)!write(file, current_data, current_size);
    close(file);
  }
  Say("the input that failed is in ");
  Say(finding_path.c_str());
  Say("\n");
  std::signal(signal, SIG_DFL);
  raise(signal);
}

void RunOne(const std::string& input) {
  current_data = input.data();
  current_size = input.size();
  // A copy of exactly this size, so that reading past it is seen.
  const std::vector<uint8_t> bytes(input.begin(), input.end());
  LLVMFuzzerTestOneInput(bytes.data(), bytes.size());
}

std::string ReadFile(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

// Flips, cuts, repeats and splices.
class Mutator {
 public:
  explicit Mutator(const std::vector<std::string>* corpus) : corpus_(*corpus) {}

  std::string Next() {
    std::string input = Pick();
    for (size_t i = 1 + Draw(6); i > 0; --i) {
      Change(&input);
    }
    input.resize(std::min(input.size(), kMaxInput));
    return input;
  }

 private:
  size_t Draw(size_t below) { return below == 0 ? 0 : random_() % below; }
  const std::string& Pick() { return corpus_[Draw(corpus_.size())]; }
  // A piece of `text`, short more often than long.
  std::string Piece(const std::string& text) {
    const size_t begin = Draw(text.size());
    return text.substr(begin, Draw(size_t{1} << Draw(12)));
  }

  void Change(std::string* input) {
    static constexpr char kBytes[] = {'\0', '\x7f', '\xff', '"', '{', '}',
                                      '[',  ']',    '\\',   '9', '-'};
    const size_t at = Draw(input->size());
    switch (Draw(8)) {
      case 0:
        return input->resize(at);
      case 1:
        input->erase(at, Draw(size_t{1} << Draw(12)));
        return;
      case 2:
        input->insert(at, Piece(*input));
        return;
      case 3:
        input->insert(at, Piece(Pick()));
        return;
      case 4:
        input->insert(at, Draw(40), kBytes[Draw(sizeof(kBytes))]);
        return;
      case 5:
        if (!input->empty()) {
          (*input)[at] = kBytes[Draw(sizeof(kBytes))];
        }
        return;
      case 6:
        if (!input->empty()) {
          (*input)[at] = static_cast<char>(random_());
        }
        return;
      default:
        if (!input->empty()) {
          (*input)[at] = static_cast<char>((*input)[at] ^ 1 << Draw(8));
        }
    }
  }

  const std::vector<std::string>& corpus_;
  std::mt19937_64 random_{1};
};

std::string corpus_path;  // NOLINT(runtime/string): lives as long as the process.
int mutations = 0;

std::vector<std::string> ReadCorpus() {
  std::vector<std::filesystem::path> paths;
  for (const auto& entry : std::filesystem::directory_iterator(corpus_path)) {
    paths.push_back(entry.path());
  }
  std::sort(paths.begin(), paths.end());
  std::vector<std::string> corpus;
  for (const auto& path : paths) {
    corpus.push_back(ReadFile(path));
  }
  return corpus;
}

TEST(FuzzTarget, SurvivesItsCorpus) {
  const std::vector<std::string> corpus = ReadCorpus();
  EXPECT_FALSE(corpus.empty());
  for (const std::string& input : corpus) {
    RunOne(input);
  }
}

TEST(FuzzTarget, SurvivesMutationsOfIt) {
  const std::vector<std::string> corpus = ReadCorpus();
  ASSERT_FALSE(corpus.empty());
  Mutator mutator(&corpus);
  for (int i = 0; i < mutations; ++i) {
    RunOne(mutator.Next());
  }
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  std::printf("%zu inputs of the corpus, %d mutations, at most %ld MiB\n", corpus.size(), mutations,
              usage.ru_maxrss >> 10);
}

}  // namespace

int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  if (argc < 2) {
    std::fprintf(stderr, "use: %s FOLDER [RUNS] | FILE...\n", argv[0]);
    return 2;
  }
  finding_path = "finding-" + std::filesystem::path(argv[0]).filename().string();
  for (const int signal : {SIGABRT, SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP}) {
    std::signal(signal, KeepInput);
  }
#ifndef STRATA_SANITIZED
  const rlimit limit = {kMaxMemory, kMaxMemory};  // Sanitizers reserve far more than they use.
  setrlimit(RLIMIT_AS, &limit);
#endif
  if (!std::filesystem::is_directory(argv[1])) {
    std::for_each(argv + 1, argv + argc, [](const char* path) { RunOne(ReadFile(path)); });
    return 0;
  }
  corpus_path = argv[1];
  mutations = argc > 2 ? std::atoi(argv[2]) : 0;
  return RUN_ALL_TESTS();
}
