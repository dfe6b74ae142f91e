// Server-sent events as OpenAI's API streams them.
#ifndef STRATA_CLI_BENCH_SSE_READER_H_
#define STRATA_CLI_BENCH_SSE_READER_H_

#include <functional>
#include <string>
#include <string_view>

namespace strata::cli {

// Cuts a stream of bytes, in whatever pieces it comes, into the data of its events. Comments and
// other fields are skipped; lines end with LF or CRLF; several data lines of one event are joined
// by LF.
class SseReader {
 public:
  // Calls `on_data` for each event that `bytes` completes. False: a line or an event is longer
  // than 16 MiB; the stream is not to be read on.
  bool Feed(std::string_view bytes, const std::function<void(std::string_view data)>& on_data);

 private:
  static constexpr size_t kMaxBytes = size_t{16} << 20;
  void TakeLine(std::string_view line, const std::function<void(std::string_view)>& on_data);

  std::string line_;  // What there is of the one that is not complete.
  std::string data_;
  bool has_data_ = false;
};

}  // namespace strata::cli

#endif  // STRATA_CLI_BENCH_SSE_READER_H_
