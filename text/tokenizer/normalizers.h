// The normalizers there are, by their names in the file. "Precompiled" is in precompiled.h.
#ifndef STRATA_TEXT_TOKENIZER_NORMALIZERS_H_
#define STRATA_TEXT_TOKENIZER_NORMALIZERS_H_

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "text/tokenizer/normalizer.h"
#include "text/tokenizer/text_pattern.h"
#include "text/unicode/characters.h"

namespace strata {

// "NFC", "NFD", "NFKC", "NFKD".
class UnicodeNormalizer : public Normalizer {
 public:
  explicit UnicodeNormalizer(NormalForm form) : form_(form) {}
  absl::Status Apply(NormalizedText* text) const override;
  // A form makes at most one byte of four, and joins at most four characters to one.
  size_t max_shrink() const override { return 16; }

 private:
  const NormalForm form_;
};

// "Prepend": puts a text before every text but an empty one.
class PrependNormalizer : public Normalizer {
 public:
  explicit PrependNormalizer(std::string prefix) : prefix_(std::move(prefix)) {}
  absl::Status Apply(NormalizedText* text) const override;
  size_t max_shrink() const override { return 1; }

 private:
  const std::string prefix_;
};

// "Replace": each match becomes `content`.
class ReplaceNormalizer : public Normalizer {
 public:
  ReplaceNormalizer(TextPattern pattern, std::string content)
      : pattern_(std::move(pattern)), content_(std::move(content)) {}
  absl::Status Apply(NormalizedText* text) const override;
  size_t max_shrink() const override;

 private:
  const TextPattern pattern_;
  const std::string content_;
};

// "Strip": white space at the ends.
class StripNormalizer : public Normalizer {
 public:
  StripNormalizer(bool left, bool right) : left_(left), right_(right) {}
  absl::Status Apply(NormalizedText* text) const override;

 private:
  const bool left_;
  const bool right_;
};

// "Lowercase", "StripAccents", "Nmt": what each character becomes, on its own.
class CharacterNormalizer : public Normalizer {
 public:
  // Appends what a character becomes.
  using Map = void (*)(char32_t character, std::string* out);
  explicit CharacterNormalizer(Map map) : map_(map) {}
  absl::Status Apply(NormalizedText* text) const override;
  size_t max_shrink() const override;

  static void Lowercase(char32_t character, std::string* out);
  static void StripAccents(char32_t character, std::string* out);
  static void Nmt(char32_t character, std::string* out);

 private:
  const Map map_;
};

// "BertNormalizer": what BERT does before it cuts words.
class BertNormalizer : public Normalizer {
 public:
  struct Options {
    bool clean_text = true;     // Control characters go, white space becomes blanks.
    bool split_chinese = true;  // Blanks around each Chinese character.
    bool strip_accents = true;  // NFD without nonspacing marks.
    bool lowercase = true;
  };
  explicit BertNormalizer(const Options& options) : options_(options) {}
  absl::Status Apply(NormalizedText* text) const override;

 private:
  const Options options_;
};

// "ByteLevel": every byte becomes its character of the byte alphabet.
class ByteLevelNormalizer : public Normalizer {
 public:
  absl::Status Apply(NormalizedText* text) const override;
  size_t max_shrink() const override { return 1; }
  bool makes_byte_alphabet() const override { return true; }
};

// "Sequence": one after another; none leaves the text as it is.
class SequenceNormalizer : public Normalizer {
 public:
  explicit SequenceNormalizer(std::vector<std::unique_ptr<Normalizer>> parts)
      : parts_(std::move(parts)) {}
  absl::Status Apply(NormalizedText* text) const override;
  size_t max_shrink() const override;
  bool makes_byte_alphabet() const override {
    return !parts_.empty() && parts_.back()->makes_byte_alphabet();
  }

 private:
  const std::vector<std::unique_ptr<Normalizer>> parts_;
};

}  // namespace strata

#endif  // STRATA_TEXT_TOKENIZER_NORMALIZERS_H_
