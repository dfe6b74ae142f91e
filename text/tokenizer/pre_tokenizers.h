// The pre-tokenizers there are, by their names in the file. "Metaspace" is in metaspace.h.
#ifndef STRATA_TEXT_TOKENIZER_PRE_TOKENIZERS_H_
#define STRATA_TEXT_TOKENIZER_PRE_TOKENIZERS_H_

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "text/tokenizer/pre_tokenizer.h"
#include "text/tokenizer/regex.h"
#include "text/tokenizer/split_behavior.h"
#include "text/tokenizer/text_pattern.h"

namespace strata {

// "Split" at the matches of a pattern.
class SplitPreTokenizer : public PreTokenizer {
 public:
  SplitPreTokenizer(TextPattern pattern, SplitBehavior behavior, bool invert)
      : pattern_(std::move(pattern)), behavior_(behavior), invert_(invert) {}
  absl::Status Apply(PreTokenized* text) const override;
  size_t max_shrink() const override { return behavior_ == SplitBehavior::kRemoved ? 0 : 1; }

 private:
  const TextPattern pattern_;
  const SplitBehavior behavior_;
  const bool invert_;
};

// "ByteLevel": GPT-2's pattern if wanted, then every byte as its character of the byte alphabet.
class ByteLevelPreTokenizer : public PreTokenizer {
 public:
  static absl::StatusOr<std::unique_ptr<PreTokenizer>> Make(bool add_prefix_space, bool use_regex);
  absl::Status Apply(PreTokenized* text) const override;
  size_t max_shrink() const override { return 1; }
  bool makes_byte_alphabet() const override { return true; }

 private:
  ByteLevelPreTokenizer(bool add_prefix_space, std::unique_ptr<Regex> regex)
      : add_prefix_space_(add_prefix_space), regex_(std::move(regex)) {}

  const bool add_prefix_space_;
  const std::unique_ptr<Regex> regex_;  // Null: none.
};

// "Digits", "Punctuation", "WhitespaceSplit": splits at the characters of a class.
class CharacterPreTokenizer : public PreTokenizer {
 public:
  using Class = bool (*)(char32_t);
  CharacterPreTokenizer(Class matches, SplitBehavior behavior)
      : matches_(matches), behavior_(behavior) {}
  absl::Status Apply(PreTokenized* text) const override;
  size_t max_shrink() const override { return behavior_ == SplitBehavior::kRemoved ? 0 : 1; }

 private:
  const Class matches_;
  const SplitBehavior behavior_;
};

// "FixedLength": pieces of so many characters; the last of a piece has what is left.
class FixedLengthPreTokenizer : public PreTokenizer {
 public:
  explicit FixedLengthPreTokenizer(size_t length) : length_(length) {}
  absl::Status Apply(PreTokenized* text) const override;
  size_t max_shrink() const override { return 1; }

 private:
  const size_t length_;  // At least 1.
};

// "Sequence": one after another.
class SequencePreTokenizer : public PreTokenizer {
 public:
  explicit SequencePreTokenizer(std::vector<std::unique_ptr<PreTokenizer>> parts)
      : parts_(std::move(parts)) {}
  absl::Status Apply(PreTokenized* text) const override;
  size_t max_shrink() const override;
  bool makes_byte_alphabet() const override {
    return !parts_.empty() && parts_.back()->makes_byte_alphabet();
  }

 private:
  const std::vector<std::unique_ptr<PreTokenizer>> parts_;
};

}  // namespace strata

#endif  // STRATA_TEXT_TOKENIZER_PRE_TOKENIZERS_H_
