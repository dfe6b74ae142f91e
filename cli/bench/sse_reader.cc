#include "cli/bench/sse_reader.h"

namespace strata::cli {

bool SseReader::Feed(std::string_view bytes,
                     const std::function<void(std::string_view data)>& on_data) {
  while (true) {
    const size_t end = bytes.find('\n');
    if (end == bytes.npos) {
      line_ += bytes;
      return line_.size() <= kMaxBytes;
    }
    if (line_.empty()) {
      TakeLine(bytes.substr(0, end), on_data);
    } else {
      line_ += bytes.substr(0, end);
      TakeLine(line_, on_data);
      line_.clear();
    }
    if (data_.size() > kMaxBytes) {
      return false;
    }
    bytes.remove_prefix(end + 1);
  }
}

void SseReader::TakeLine(std::string_view line,
                         const std::function<void(std::string_view)>& on_data) {
  constexpr std::string_view kData = "data:";
  if (!line.empty() && line.back() == '\r') {
    line.remove_suffix(1);
  }
  if (line.empty()) {
    if (has_data_) {
      on_data(data_);
    }
    data_.clear();
    has_data_ = false;
  } else if (line.substr(0, kData.size()) == kData) {
    line.remove_prefix(kData.size());
    if (!line.empty() && line.front() == ' ') {
      line.remove_prefix(1);
    }
    if (has_data_) {
      data_ += '\n';
    }
    data_ += line;
    has_data_ = true;
  }
}

}  // namespace strata::cli
