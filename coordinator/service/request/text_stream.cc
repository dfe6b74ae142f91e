#include "coordinator/service/request/text_stream.h"

#include <algorithm>

namespace strata {
namespace {

// Bytes at the end of `text` that begin `stop`, less than all of it.
size_t Overlap(const std::string& text, const std::string& stop) {
  for (size_t n = std::min(text.size(), stop.size() - 1); n > 0; --n) {
    if (text.compare(text.size() - n, n, stop, 0, n) == 0) {
      return n;
    }
  }
  return 0;
}

}  // namespace

std::string TextStream::Add(uint32_t id) {
  return stream_ == nullptr || stopped_ ? "" : Take(stream_->Add(id), Barred(), false);
}

void TextStream::Add(uint32_t id, const std::function<bool(std::string_view)>& hear) {
  if (stream_ == nullptr || stopped_) {
    return;
  }
  const std::string text = stream_->Add(id);
  const bool barred = Barred();
  if (stops_.empty()) {
    hear(Take(text, barred, false));
    return;
  }
  for (size_t at = 0; at < text.size() && !stopped_; ++at) {
    if (hear(Take(std::string_view(text).substr(at, 1), barred, false)) && !stopped_) {
      hear(EndStops() + text.substr(at + 1));
      return;
    }
  }
}

bool TextStream::Barred() {
  const bool barred = barred_ids_ > 0;
  barred_ids_ -= barred ? 1 : 0;
  return barred;
}

size_t TextStream::FindStop() const {
  size_t first = std::string::npos;
  for (const std::string& stop : stops_) {
    const size_t from = barred_ < stop.size() ? 0 : barred_ - stop.size() + 1;
    first = std::min(first, held_.find(stop, from));
  }
  return first;
}

std::string TextStream::Break() {
  barred_ = 0;
  return std::exchange(held_, {});
}

std::string TextStream::EndStops() {
  stops_.clear();
  return Break();
}

std::string TextStream::Finish() {
  return stream_ == nullptr || stopped_ ? "" : Take(stream_->Finish(), Barred(), true);
}

std::string TextStream::Take(std::string_view text, bool barred, bool at_end) {
  held_ += text;
  if (barred) {
    barred_ = held_.size();
  }
  const size_t first = FindStop();
  std::string said;
  if (first != std::string::npos) {
    stopped_ = true;
    said = held_.substr(0, first);
    held_.clear();
    return said;
  }
  size_t keep = 0;
  for (const std::string& stop : stops_) {
    keep = at_end ? 0 : std::max(keep, Overlap(held_, stop));
  }
  said = held_.substr(0, held_.size() - keep);
  held_.erase(0, said.size());
  barred_ -= std::min(barred_, said.size());
  return said;
}

}  // namespace strata
