#include "text/masks/mask_compiler.h"

#include <cstdint>
#include <filesystem>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/status.h"
#include "gtest/gtest.h"
#include "text/masks/mask_request.h"

namespace strata {
namespace {

std::string Program() {
  return (std::filesystem::read_symlink("/proc/self/exe").parent_path() / "mask_program").string();
}

std::shared_ptr<const MaskVocabulary> Letters() {
  std::vector<std::string> tokens;
  for (char c = ' '; c < 127; ++c) {
    tokens.emplace_back(1, c);
  }
  tokens.emplace_back("");
  return *MaskVocabulary::Make(tokens, {static_cast<int32_t>(tokens.size() - 1)});
}

MaskCompilerOptions With(std::vector<std::string> command) {
  MaskCompilerOptions options;
  options.command = std::move(command);
  return options;
}

TEST(MaskCompiler, CompilesOnceAndKeeps) {
  MaskCompiler compiler(With({Program(), "60", "0", "1000"}));
  const auto vocabulary = Letters();
  const auto first = compiler.Compile("root ::= \"a\" [b-d]{2,3}", vocabulary);
  ASSERT_TRUE(first.ok()) << first.status();
  const auto second = compiler.Compile("root ::= \"a\" [b-d]{2,3}", vocabulary);
  EXPECT_EQ(*first, *second);
  EXPECT_EQ(compiler.started(), 1U);
  EXPECT_EQ(compiler.kept_bytes(), (*first)->bytes());
  auto matcher = *TokenMatcher::Make(*first);
  EXPECT_TRUE(*matcher->Accept('a' - ' '));
  EXPECT_FALSE(*matcher->Accept('a' - ' '));
  EXPECT_TRUE(*matcher->Accept('d' - ' '));
}

TEST(MaskCompiler, KeepsNoMoreThanItMay) {
  const auto vocabulary = Letters();
  MaskCompiler probe(With({Program(), "60", "0", "1000"}));
  const size_t bytes = (*probe.Compile("root ::= [a]", vocabulary))->bytes();
  MaskCompilerOptions options = With({Program(), "60", "0", "1000"});
  options.max_kept_bytes = bytes * 2 + bytes / 2;
  MaskCompiler compiler(options);
  for (const char* const grammar :
       {"root ::= [a]", "root ::= [b]", "root ::= [a]", "root ::= [c]", "root ::= [a]"}) {
    ASSERT_TRUE(compiler.Compile(grammar, vocabulary).ok());
    EXPECT_LE(compiler.kept_bytes(), options.max_kept_bytes);
  }
  EXPECT_EQ(compiler.started(), 3U);
  ASSERT_TRUE(compiler.Compile("root ::= [b]", vocabulary).ok());
  EXPECT_EQ(compiler.started(), 4U);
}

TEST(MaskCompiler, SaysWhatIsWrongWithAGrammar) {
  MaskCompiler compiler(With({Program(), "60", "0", "1000"}));
  EXPECT_EQ(ReasonOf(compiler.Compile("root ::= nowhere", Letters()).status()), "GRAMMAR_INVALID");
}

TEST(MaskCompiler, AProcessAtItsLimitsIsARefusedGrammar) {
  // One that never ends but by its limit of processor time.
  MaskCompiler slow(With({"/bin/sh", "-c", "ulimit -t 1; while :; do :; done"}));
  EXPECT_EQ(ReasonOf(slow.Compile("root ::= [a]", Letters()).status()), "GRAMMAR_TOO_EXPENSIVE");
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
  // Too little for anything.
  MaskCompiler small(With({Program(), "60", "20000000", "1000"}));
  EXPECT_EQ(
      ReasonOf(small
                   .Compile("root ::= [a]", *MaskVocabulary::Make(
                                                std::vector<std::string>(500'000, "abcdefgh"), {0}))
                   .status()),
      "GRAMMAR_TOO_EXPENSIVE");
#endif
  MaskCompilerOptions options = With({Program(), "60", "0", "1000"});
  options.max_answer_bytes = 100;
  MaskCompiler narrow(options);
  EXPECT_EQ(ReasonOf(narrow.Compile("root ::= [a]", Letters()).status()), "GRAMMAR_TOO_EXPENSIVE");
}

TEST(MaskCompiler, AProcessThatDoesNotAnswerInTimeIsEnded) {
  MaskCompilerOptions options = With({"/bin/sh", "-c", "exec sleep 1000"});
  options.timeout = milliseconds(50);
  MaskCompiler asleep(options);
  const absl::Status status = asleep.Compile("root ::= [a]", Letters()).status();
  EXPECT_EQ(ReasonOf(status), "GRAMMAR_TOO_EXPENSIVE");
  EXPECT_NE(status.message().find("50 ms"), std::string_view::npos) << status;
}

TEST(MaskCompiler, StopEndsWhatRunsAndStartsNothing) {
  MaskCompiler compiler(With({"/bin/sh", "-c", "exec sleep 1000"}));
  absl::Status told;
  std::thread waits([&] { told = compiler.Compile("root ::= [a]", Letters()).status(); });
  while (compiler.started() == 0) std::this_thread::yield();
  compiler.Stop();
  waits.join();
  EXPECT_EQ(ReasonOf(told), "STOPPING");
  EXPECT_EQ(ReasonOf(compiler.Compile("root ::= [b]", Letters()).status()), "STOPPING");
  EXPECT_EQ(compiler.started(), 1U);
}

// It compiles in no time, and each of its masks takes seconds.
TEST(MaskCompiler, AGrammarWhoseFirstMaskTakesTooLongIsRefused) {
  std::string ebnf = "root ::= ";
  std::string rules;
  for (int i = 0; i < 60; ++i) {
    ebnf += absl::StrCat(i == 0 ? "" : " | ", "r", i);
    rules += absl::StrCat("\nr", i, " ::= ([a-z] | [a-m] [a-z]){", i + 1, ",}");
  }
  std::vector<std::string> tokens;
  for (int i = 0; i < 20'000; ++i) {
    std::string token;
    for (int rest = i + 27; rest > 0; rest /= 26) token += static_cast<char>('a' + rest % 26);
    tokens.push_back(token + token + token);
  }
  tokens.emplace_back("");
  const auto vocabulary = *MaskVocabulary::Make(tokens, {static_cast<int32_t>(tokens.size() - 1)});
  MaskCompiler compiler(With({Program(), "60", "0", "1000"}));
  EXPECT_EQ(ReasonOf(compiler.Compile(ebnf + rules, vocabulary).status()), "GRAMMAR_TOO_EXPENSIVE");
}

TEST(MaskCompiler, MemoryThatLacksIsNoInvalidGrammar) {
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
  // Some of them lack it while the grammar is compiled, with an exception.
  for (uint64_t bytes = 20'000'000; bytes <= 200'000'000; bytes += 15'000'000) {
    MaskCompiler small(With({Program(), "60", std::to_string(bytes), "1000"}));
    const auto compiled = small.Compile("root ::= ([a-z]{1,300} \"x\"){1,40}", Letters());
    if (!compiled.ok()) {
      EXPECT_EQ(ReasonOf(compiled.status()), "GRAMMAR_TOO_EXPENSIVE") << compiled.status();
    }
  }
#endif
}

TEST(MaskCompiler, AProgramThatIsNotThereIsAnError) {
  MaskCompiler compiler(With({"/nowhere/mask_program"}));
  EXPECT_EQ(ReasonOf(compiler.Compile("root ::= [a]", Letters()).status()),
            "GRAMMAR_PROCESS_FAILED");
}

TEST(MaskCompiler, SeveralThreadsCompileAtOnce) {
  MaskCompiler compiler(With({Program(), "60", "0", "1000"}));
  const auto vocabulary = Letters();
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&, i] {
      const auto compiled = compiler.Compile(absl::StrCat("root ::= [a]{", i + 1, "}"), vocabulary);
      ASSERT_TRUE(compiled.ok()) << compiled.status();
      auto matcher = *TokenMatcher::Make(*compiled);
      for (int j = 0; j < i + 1; ++j) {
        EXPECT_FALSE(matcher->IsComplete());
        EXPECT_TRUE(*matcher->Accept('a' - ' '));
      }
      EXPECT_TRUE(matcher->IsComplete());
    });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
}

TEST(MaskRequest, IsReadAsItWasWritten) {
  const MaskRequest request = {
      .tokens = {"a", "", std::string("\0b", 2)}, .stop_ids = {1, -1}, .ebnf = "root ::= [a]"};
  const std::string bytes = Encode(request);
  const std::optional<MaskRequest> read = DecodeMaskRequest(bytes);
  ASSERT_TRUE(read.has_value());
  EXPECT_EQ(read->tokens, request.tokens);
  EXPECT_EQ(read->stop_ids, request.stop_ids);
  EXPECT_EQ(read->ebnf, request.ebnf);
  for (size_t cut = 0; cut < bytes.size(); ++cut) {
    EXPECT_FALSE(DecodeMaskRequest(std::string_view(bytes).substr(0, cut)).has_value()) << cut;
  }
}

}  // namespace
}  // namespace strata
