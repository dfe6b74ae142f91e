#include "text/tokenizer/pre_tokenizers.h"

#include "common/status.h"
#include "text/tokenizer/byte_alphabet.h"
#include "text/unicode/utf8.h"

namespace strata {
namespace {

// GPT-2's pattern, which "ByteLevel" implies.
constexpr char kByteLevelPattern[] =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";

// Cuts every piece at what `find` (text of the piece, matches) puts into matches.
template <typename Find>
absl::Status SplitPieces(PreTokenized* text, SplitBehavior behavior, bool invert, Find find) {
  std::vector<TextRange> pieces;
  std::vector<TextRange> matches;
  for (const TextRange piece : text->pieces) {
    RETURN_IF_ERROR(find(piece.Of(text->text), &matches));
    SplitPiece(piece, matches, behavior, invert, &pieces);
  }
  text->pieces = std::move(pieces);
  return absl::OkStatus();
}

}  // namespace

absl::Status SplitPreTokenizer::Apply(PreTokenized* text) const {
  return SplitPieces(text, behavior_, invert_,
                     [this](std::string_view piece, std::vector<TextRange>* matches) {
                       return pattern_.FindAll(piece, matches);
                     });
}

absl::Status CharacterPreTokenizer::Apply(PreTokenized* text) const {
  return SplitPieces(
      text, behavior_, /*invert=*/false,
      [this](std::string_view piece, std::vector<TextRange>* matches) {
        matches->clear();
        for (size_t at = 0; at < piece.size();) {
          const size_t begin = at;
          if (matches_(NextChar(piece, &at))) {
            matches->push_back({static_cast<uint32_t>(begin), static_cast<uint32_t>(at)});
          }
        }
        return absl::OkStatus();
      });
}

absl::StatusOr<std::unique_ptr<PreTokenizer>> ByteLevelPreTokenizer::Make(bool add_prefix_space,
                                                                          bool use_regex) {
  std::unique_ptr<Regex> regex;
  if (use_regex) {
    ASSIGN_OR_RETURN(regex, Regex::Compile(kByteLevelPattern));
  }
  return std::unique_ptr<PreTokenizer>(
      new ByteLevelPreTokenizer(add_prefix_space, std::move(regex)));
}

absl::Status ByteLevelPreTokenizer::Apply(PreTokenized* text) const {
  PreTokenized out;
  out.at_start = text->at_start;
  out.max_bytes = text->max_bytes;
  out.text.reserve(text->text.size() + text->text.size() / 2);
  out.pieces.reserve(text->pieces.size());
  std::vector<TextRange> cuts;
  std::vector<TextRange> matches;
  std::string prefixed;
  for (const TextRange range : text->pieces) {
    std::string_view piece = range.Of(text->text);
    if (add_prefix_space_ && piece.front() != ' ') {
      prefixed.assign(1, ' ').append(piece);
      piece = prefixed;
    }
    const TextRange whole{0, static_cast<uint32_t>(piece.size())};
    cuts.clear();
    if (regex_ != nullptr) {
      RETURN_IF_ERROR(regex_->FindAll(piece, &matches));
      SplitPiece(whole, matches, SplitBehavior::kIsolated, /*invert=*/false, &cuts);
    } else {
      cuts.push_back(whole);
    }
    for (const TextRange cut : cuts) {
      const auto begin = static_cast<uint32_t>(out.text.size());
      AppendByteLevel(cut.Of(piece), &out.text);
      out.pieces.push_back({begin, static_cast<uint32_t>(out.text.size())});
    }
    RETURN_IF_ERROR(CheckGrown(out.text.size(), out.max_bytes));
  }
  *text = std::move(out);
  return absl::OkStatus();
}

absl::Status FixedLengthPreTokenizer::Apply(PreTokenized* text) const {
  std::vector<TextRange> pieces;
  for (const TextRange piece : text->pieces) {
    for (size_t at = piece.begin; at < piece.end;) {
      const size_t begin = at;
      for (size_t i = 0; i < length_ && at < piece.end; ++i) {
        NextChar(text->text, &at);
      }
      pieces.push_back({static_cast<uint32_t>(begin), static_cast<uint32_t>(at)});
    }
  }
  text->pieces = std::move(pieces);
  return absl::OkStatus();
}

absl::Status SequencePreTokenizer::Apply(PreTokenized* text) const {
  for (const auto& part : parts_) {
    RETURN_IF_ERROR(part->Apply(text));
  }
  return absl::OkStatus();
}

size_t SequencePreTokenizer::max_shrink() const {
  size_t shrink = 1;
  for (const auto& part : parts_) {
    shrink *= part->max_shrink();
  }
  return shrink;
}

}  // namespace strata
