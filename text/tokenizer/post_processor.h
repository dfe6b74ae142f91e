// Fourth stage of a tokenizer: what is put around the ids of a text.
#ifndef STRATA_TEXT_TOKENIZER_POST_PROCESSOR_H_
#define STRATA_TEXT_TOKENIZER_POST_PROCESSOR_H_

#include <cstdint>
#include <utility>
#include <vector>

namespace strata {

// Const and usable by any thread. "ByteLevel" only moves offsets, and "Sequence" is its parts one
// after another: a template is all that changes ids.
class PostProcessor {
 public:
  virtual ~PostProcessor() = default;
  virtual std::vector<uint32_t> Apply(std::vector<uint32_t> ids) const = 0;
};

// "TemplateProcessing": ids before and behind the text's.
class TemplatePostProcessor : public PostProcessor {
 public:
  TemplatePostProcessor(std::vector<uint32_t> before, std::vector<uint32_t> after)
      : before_(std::move(before)), after_(std::move(after)) {}
  std::vector<uint32_t> Apply(std::vector<uint32_t> ids) const override {
    ids.insert(ids.begin(), before_.begin(), before_.end());
    ids.insert(ids.end(), after_.begin(), after_.end());
    return ids;
  }

 private:
  const std::vector<uint32_t> before_;
  const std::vector<uint32_t> after_;
};

}  // namespace strata

#endif  // STRATA_TEXT_TOKENIZER_POST_PROCESSOR_H_
