// A generated answer's text: ids in, text out, cut at stop strings. What might be the beginning of
// a stop string is held back.
#ifndef STRATA_COORDINATOR_SERVICE_TEXT_STREAM_H_
#define STRATA_COORDINATOR_SERVICE_TEXT_STREAM_H_

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "coordinator/tokenizer/tokenizer.h"

namespace strata {

class TextStream {
 public:
  // `stream` may be null (a model without tokenizer): then there is no text and no stop string.
  TextStream(std::unique_ptr<Tokenizer::Stream> stream, std::vector<std::string> stops)
      : stream_(std::move(stream)), stops_(std::move(stops)) {}

  // Text that can be said after one more id. After a stop string was found it is all that comes
  // before it, and stopped() is true.
  std::string Add(uint32_t id);
  // What is left at the end.
  std::string Finish();
  bool stopped() const { return stopped_; }

 private:
  std::string Take(const std::string& text, bool at_end);

  std::unique_ptr<Tokenizer::Stream> stream_;
  const std::vector<std::string> stops_;
  std::string held_;
  bool stopped_ = false;
};

}  // namespace strata

#endif  // STRATA_COORDINATOR_SERVICE_TEXT_STREAM_H_
