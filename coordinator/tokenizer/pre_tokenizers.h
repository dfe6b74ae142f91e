// The pre-tokenizers there are, by their names in the file.
#ifndef STRATA_COORDINATOR_TOKENIZER_PRE_TOKENIZERS_H_
#define STRATA_COORDINATOR_TOKENIZER_PRE_TOKENIZERS_H_

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "coordinator/tokenizer/pre_tokenizer.h"
#include "coordinator/tokenizer/regex.h"
#include "coordinator/tokenizer/split_behavior.h"

namespace strata {

// "Split" at the matches of a pattern.
class SplitPreTokenizer : public PreTokenizer {
 public:
  SplitPreTokenizer(std::unique_ptr<Regex> regex, SplitBehavior behavior, bool invert)
      : regex_(std::move(regex)), behavior_(behavior), invert_(invert) {}
  absl::Status Apply(PreTokenized* text) const override;

 private:
  const std::unique_ptr<Regex> regex_;
  const SplitBehavior behavior_;
  const bool invert_;
};

// "Split" at a string.
class LiteralPreTokenizer : public PreTokenizer {
 public:
  // `literal` is not empty.
  LiteralPreTokenizer(std::string literal, SplitBehavior behavior, bool invert)
      : literal_(std::move(literal)), behavior_(behavior), invert_(invert) {}
  absl::Status Apply(PreTokenized* text) const override;

 private:
  const std::string literal_;
  const SplitBehavior behavior_;
  const bool invert_;
};

// "ByteLevel": GPT-2's pattern if wanted, then every byte as its character of the byte alphabet.
class ByteLevelPreTokenizer : public PreTokenizer {
 public:
  static absl::StatusOr<std::unique_ptr<PreTokenizer>> Make(bool add_prefix_space, bool use_regex);
  absl::Status Apply(PreTokenized* text) const override;

 private:
  ByteLevelPreTokenizer(bool add_prefix_space, std::unique_ptr<Regex> regex)
      : add_prefix_space_(add_prefix_space), regex_(std::move(regex)) {}

  const bool add_prefix_space_;
  const std::unique_ptr<Regex> regex_;  // Null: none.
};

// "Digits" and "Punctuation": splits at the characters of a class.
class CharacterPreTokenizer : public PreTokenizer {
 public:
  using Class = bool (*)(char32_t);
  CharacterPreTokenizer(Class matches, SplitBehavior behavior)
      : matches_(matches), behavior_(behavior) {}
  absl::Status Apply(PreTokenized* text) const override;

 private:
  const Class matches_;
  const SplitBehavior behavior_;
};

// "Sequence": one after another.
class SequencePreTokenizer : public PreTokenizer {
 public:
  explicit SequencePreTokenizer(std::vector<std::unique_ptr<PreTokenizer>> parts)
      : parts_(std::move(parts)) {}
  absl::Status Apply(PreTokenized* text) const override;

 private:
  const std::vector<std::unique_ptr<PreTokenizer>> parts_;
};

}  // namespace strata

#endif  // STRATA_COORDINATOR_TOKENIZER_PRE_TOKENIZERS_H_
