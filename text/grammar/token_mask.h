// Which tokens may come next under a grammar: the seam to XGrammar, none of whose exceptions or
// types pass it.
#ifndef STRATA_TEXT_GRAMMAR_TOKEN_MASK_H_
#define STRATA_TEXT_GRAMMAR_TOKEN_MASK_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace strata {

// Stands before the name in the bytes of a special token: no text has it, so that only the token's
// own Token(id) in a grammar means it (GrammarExpr::Kind::kToken).
inline constexpr char kSpecialTokenByte = '\xff';

// What each token is as bytes, and which end an answer. Immutable; any thread.
class TokenVocabulary {
 public:
  // Tokens without bytes are empty and never allowed. Special ones, whose names grammars may have,
  // begin with kSpecialTokenByte. Every stop id is an id.
  // INVALID_VOCABULARY.
  static absl::StatusOr<std::shared_ptr<const TokenVocabulary>> Make(
      const std::vector<std::string>& tokens, const std::vector<int32_t>& stop_ids);
  ~TokenVocabulary();

  size_t size() const;
  // 32-bit words of a mask.
  size_t mask_words() const { return (size() + 31) / 32; }

 private:
  friend class CompiledGrammar;
  struct Impl;
  explicit TokenVocabulary(std::unique_ptr<const Impl> impl);
  const std::unique_ptr<const Impl> impl_;
};

// A grammar over a vocabulary. Immutable; any thread. The work of Compile is bounded by nothing: it
// belongs into a process that has limits, which hands on what Serialize gives.
class CompiledGrammar {
 public:
  // Of EbnfOf's result. GRAMMAR_INVALID with what XGrammar says; GRAMMAR_TOO_EXPENSIVE where
  // memory lacks.
  static absl::StatusOr<std::shared_ptr<const CompiledGrammar>> Compile(
      const std::string& ebnf, std::shared_ptr<const TokenVocabulary> vocabulary);
  // Of Serialize's result for the same vocabulary. GRAMMAR_INVALID.
  static absl::StatusOr<std::shared_ptr<const CompiledGrammar>> Deserialize(
      const std::string& serialized, std::shared_ptr<const TokenVocabulary> vocabulary);
  ~CompiledGrammar();

  absl::StatusOr<std::string> Serialize() const;
  // What XGrammar counts; some megabytes less than it takes.
  size_t bytes() const;
  const TokenVocabulary& vocabulary() const { return *vocabulary_; }

 private:
  friend class TokenMatcher;
  struct Impl;
  CompiledGrammar(std::unique_ptr<const Impl> impl,
                  std::shared_ptr<const TokenVocabulary> vocabulary);
  const std::unique_ptr<const Impl> impl_;
  const std::shared_ptr<const TokenVocabulary> vocabulary_;
};

// Where one answer is in its grammar: a pure function of the tokens that were accepted. One thread.
class TokenMatcher {
 public:
  static absl::StatusOr<std::unique_ptr<TokenMatcher>> Make(
      std::shared_ptr<const CompiledGrammar> grammar);
  ~TokenMatcher();

  // Sets the bits of the tokens that may come next, the lowest bit of the first word being token 0.
  // `mask` has mask_words() words. MASK_FAILED.
  absl::Status FillMask(std::span<uint32_t> mask);
  // Whether the token may come next; if so, it is taken. A stop token is taken where the text is
  // complete, and nothing behind it. MASK_FAILED.
  absl::StatusOr<bool> Accept(int32_t token);
  // Takes the last `count` tokens back; at most as many as were taken.
  absl::Status Rollback(size_t count);
  // Whether the text that was taken follows the grammar as it is.
  bool IsComplete() const;
  // Tokens taken and not taken back.
  size_t taken() const { return taken_; }

 private:
  struct Impl;
  explicit TokenMatcher(std::unique_ptr<Impl> impl);
  const std::unique_ptr<Impl> impl_;
  size_t taken_ = 0;
};

}  // namespace strata

#endif  // STRATA_TEXT_GRAMMAR_TOKEN_MASK_H_
