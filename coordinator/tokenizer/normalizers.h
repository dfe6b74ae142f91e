// The normalizers there are.
#ifndef STRATA_COORDINATOR_TOKENIZER_NORMALIZERS_H_
#define STRATA_COORDINATOR_TOKENIZER_NORMALIZERS_H_

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "coordinator/tokenizer/normalizer.h"
#include "coordinator/tokenizer/unicode.h"

namespace strata {

// "NFC", "NFD", "NFKC", "NFKD".
class UnicodeNormalizer : public Normalizer {
 public:
  explicit UnicodeNormalizer(NormalForm form) : form_(form) {}
  std::string Normalize(std::string_view text) const override {
    return strata::Normalize(text, form_);
  }

 private:
  const NormalForm form_;
};

// "Sequence": one after another; none leaves the text as it is.
class SequenceNormalizer : public Normalizer {
 public:
  explicit SequenceNormalizer(std::vector<std::unique_ptr<Normalizer>> parts)
      : parts_(std::move(parts)) {}
  std::string Normalize(std::string_view text) const override {
    std::string out(text);
    for (const auto& part : parts_) {
      out = part->Normalize(out);
    }
    return out;
  }

 private:
  const std::vector<std::unique_ptr<Normalizer>> parts_;
};

}  // namespace strata

#endif  // STRATA_COORDINATOR_TOKENIZER_NORMALIZERS_H_
