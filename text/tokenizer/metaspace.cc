#include "text/tokenizer/metaspace.h"

#include <string_view>

#include "common/status.h"

namespace strata {
namespace {

void AppendReplaced(std::string_view piece, std::string_view replacement, std::string* out) {
  for (size_t at = 0; at < piece.size();) {
    const size_t blank = std::min(piece.find(' ', at), piece.size());
    out->append(piece.substr(at, blank - at));
    if (blank < piece.size()) {
      out->append(replacement);
    }
    at = blank + 1;
  }
}

}  // namespace

absl::Status MetaspacePreTokenizer::Apply(PreTokenized* text) const {
  const std::string& mark = options_.replacement;
  PreTokenized out;
  out.at_start = text->at_start;
  out.max_bytes = text->max_bytes;
  out.text.reserve(text->text.size() + text->text.size() / 2 + mark.size());
  for (const TextRange range : text->pieces) {
    const std::string_view piece = range.Of(text->text);
    const auto begin = static_cast<uint32_t>(out.text.size());
    const bool wanted =
        options_.prepend == PrependScheme::kAlways ||
        (options_.prepend == PrependScheme::kFirst && text->at_start && range.begin == 0);
    if (wanted && piece.front() != ' ' && !piece.starts_with(mark)) {
      out.text.append(mark);
    }
    AppendReplaced(piece, mark, &out.text);
    RETURN_IF_ERROR(CheckGrown(out.text.size(), out.max_bytes));
    const auto end = static_cast<uint32_t>(out.text.size());
    uint32_t from = begin;
    if (options_.split) {  // Each mark begins a piece.
      for (size_t at = out.text.find(mark, begin + 1); at < end;
           at = out.text.find(mark, at + mark.size())) {
        out.pieces.push_back({from, static_cast<uint32_t>(at)});
        from = static_cast<uint32_t>(at);
      }
    }
    out.pieces.push_back({from, end});
  }
  *text = std::move(out);
  return absl::OkStatus();
}

}  // namespace strata
