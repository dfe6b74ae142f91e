// A generated answer's text: ids in, text out, cut at stop strings. What might be the beginning of
// a stop string is held back. A stop string that is complete within the first min_tokens ids is
// text like any other.
#ifndef STRATA_COORDINATOR_SERVICE_REQUEST_TEXT_STREAM_H_
#define STRATA_COORDINATOR_SERVICE_REQUEST_TEXT_STREAM_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "text/tokenizer/tokenizer.h"

namespace strata {

class TextStream {
 public:
  // `stream` may be null (a model without tokenizer): then there is no text and no stop string.
  TextStream(std::unique_ptr<Tokenizer::Stream> stream, std::vector<std::string> stops,
             uint32_t min_tokens = 0)
      : stream_(std::move(stream)), stops_(std::move(stops)), barred_ids_(min_tokens) {}

  // Text that can be said after one more id. After a stop string was found it is all that comes
  // before it, and stopped() is true.
  std::string Add(uint32_t id);
  // The same a byte at a time: `hear` has what can be said with each, and says whether stop strings
  // end nothing from there on.
  void Add(uint32_t id, const std::function<bool(std::string_view)>& hear);
  // What was held back, since what follows cannot complete a stop string that began before.
  std::string Break();
  // The same, where stop strings end nothing from here on.
  std::string EndStops();
  // What is left at the end.
  std::string Finish();
  bool stopped() const { return stopped_; }

 private:
  // Whether the id at hand may complete no stop string.
  bool Barred();
  std::string Take(std::string_view text, bool barred, bool at_end);
  // Where the first stop string begins in held_, or npos.
  size_t FindStop() const;

  std::unique_ptr<Tokenizer::Stream> stream_;
  std::vector<std::string> stops_;
  uint32_t barred_ids_;  // So many more may complete no stop string.
  std::string held_;
  size_t barred_ = 0;  // Bytes of held_ that are those ids'.
  bool stopped_ = false;
};

}  // namespace strata

#endif  // STRATA_COORDINATOR_SERVICE_REQUEST_TEXT_STREAM_H_
