#include "text/tokenizer/precompiled.h"

#include "common/status.h"
#include "text/unicode/characters.h"
#include "text/unicode/utf8.h"

namespace strata {
namespace {

// Longer clusters are replaced character by character.
constexpr size_t kWholeClusterBytes = 5;

}  // namespace

absl::StatusOr<std::unique_ptr<PrecompiledNormalizer>> PrecompiledNormalizer::Make(
    std::string_view charsmap) {
  ASSIGN_OR_RETURN(CharsMap map, CharsMap::Make(charsmap));
  return std::unique_ptr<PrecompiledNormalizer>(new PrecompiledNormalizer(std::move(map)));
}

absl::Status PrecompiledNormalizer::Apply(NormalizedText* text) const {
  const std::string_view in = text->text;
  std::string out;
  out.reserve(in.size());
  for (size_t begin = 0; begin < in.size();) {
    const size_t end = GraphemeEnd(in, begin);
    const std::string_view cluster = in.substr(begin, end - begin);
    std::optional<std::string_view> whole;
    if (cluster.size() <= kWholeClusterBytes) {
      whole = map_.Shortest(cluster);
    }
    if (whole) {
      out.append(*whole);
    } else {
      for (size_t at = 0; at < cluster.size();) {
        const size_t start = at;
        NextChar(cluster, &at);
        const std::string_view character = cluster.substr(start, at - start);
        out.append(map_.Shortest(character).value_or(character));
      }
    }
    RETURN_IF_ERROR(CheckGrown(out.size(), text->max_bytes));
    begin = end;
  }
  text->text = std::move(out);
  return absl::OkStatus();
}

}  // namespace strata
