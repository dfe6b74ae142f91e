#include "text/tokenizer/sentencepiece_stages.h"

#include <algorithm>
#include <optional>

#include "common/status.h"
#include "text/tokenizer/decoder_steps.h"
#include "text/tokenizer/pre_tokenized.h"
#include "text/unicode/utf8.h"

namespace strata {
namespace {

constexpr std::string_view kMark = "\u2581";

class SentencePieceSink : public TokenSink {
 public:
  SentencePieceSink(TokenSink* next, const SentencePieceStep::Options* options)
      : next_(next), options_(*options) {}

  void Part(std::string_view text) override { token_.append(text); }
  void EndToken() override {
    if (const auto byte = ByteOfToken(token_)) {
      AddByte(static_cast<char>(*byte));
    } else {
      EndRun();
      SayPiece();
    }
    token_.clear();
  }
  void End() override {
    EndRun();
    next_->End();
  }

 private:
  void Say(std::string_view text) {
    if (!text.empty()) {
      begun_ = true;
      next_->Part(text);
      next_->EndToken();
    }
  }
  void SayPiece() {
    if (token_ == options_.unknown) {
      Say(options_.surface);
      return;
    }
    std::string_view rest = token_;
    if (options_.strip && !begun_ && rest.starts_with(kMark)) {
      rest.remove_prefix(kMark.size());
      begun_ = !options_.strip_all;
    }
    std::string text;
    while (!rest.empty()) {
      const size_t mark = std::min(rest.find(kMark), rest.size());
      text.append(rest.substr(0, mark));
      rest.remove_prefix(mark);
      if (!rest.empty()) {
        text.push_back(' ');
        rest.remove_prefix(kMark.size());
      }
    }
    Say(text);
  }
  void AddByte(char byte) {
    run_.push_back(byte);
    while (!run_.empty()) {
      const size_t good = FirstInvalidUtf8(run_).value_or(run_.size());
      Say(std::string_view(run_).substr(0, good));
      run_.erase(0, good);
      if (run_.empty() || BeginsCharacter(run_)) {
        return;
      }
      DropFirst();
    }
  }
  // A byte that begins no character.
  void DropFirst() {
    Say(kReplacementCharacter);
    run_.erase(0, 1);
  }
  void EndRun() {
    while (!run_.empty()) {
      DropFirst();
    }
  }

  TokenSink* const next_;
  const SentencePieceStep::Options& options_;
  std::string token_;
  std::string run_;     // Bytes that may become a character.
  bool begun_ = false;  // Nothing is stripped any more.
};

}  // namespace

std::pair<std::string_view, size_t> SentencePieceNormalizer::Next(std::string_view text) const {
  if (const auto piece = user_defined_.Longest(text, 0)) {
    return {text.substr(0, piece->second), piece->second};
  }
  if (const auto replaced = map_.Longest(text)) {
    return *replaced;
  }
  size_t end = 0;
  NextChar(text, &end);
  return {text.substr(0, end), end};
}

absl::Status SentencePieceNormalizer::Apply(NormalizedText* text) const {
  std::string_view in = text->text;
  if (options_.remove_extra) {
    while (!in.empty()) {
      const auto [first, length] = Next(in);
      if (first != " ") {
        break;
      }
      in.remove_prefix(length);
    }
  }
  std::string out;
  if (!in.empty() && options_.prefix && (options_.every_segment || text->at_start)) {
    out.append(kMark);
  }
  bool after_blank = options_.remove_extra;
  while (!in.empty()) {
    auto [piece, length] = Next(in);
    while (after_blank && piece.starts_with(' ')) {
      piece.remove_prefix(1);
    }
    for (const char c : piece) {
      c == ' ' ? out.append(kMark) : out.append(1, c);
    }
    if (!piece.empty()) {
      after_blank = options_.remove_extra && piece.ends_with(' ');
    }
    in.remove_prefix(length);
    RETURN_IF_ERROR(CheckGrown(out.size(), text->max_bytes));
  }
  while (options_.remove_extra && out.ends_with(kMark)) {
    out.resize(out.size() - kMark.size());
  }
  text->text = std::move(out);
  return absl::OkStatus();
}

absl::Status FrozenPiecesModel::Tokenize(std::string_view text, std::span<const TextRange> pieces,
                                         size_t most, std::vector<uint32_t>* ids) const {
  for (const TextRange range : pieces) {
    uint32_t begin = range.begin;
    const std::string_view whole = text.substr(0, range.end);
    for (size_t at = range.begin; at < range.end && ids->size() <= most;) {
      const auto frozen = user_defined_.Longest(whole, at);
      if (!frozen) {
        NextChar(whole, &at);
        continue;
      }
      if (begin < at) {
        const TextRange before[] = {{begin, static_cast<uint32_t>(at)}};
        RETURN_IF_ERROR(model_->Tokenize(text, before, most, ids));
      }
      ids->push_back(frozen->first);
      at += frozen->second;
      begin = static_cast<uint32_t>(at);
    }
    if (begin < range.end && ids->size() <= most) {
      const TextRange rest[] = {{begin, range.end}};
      RETURN_IF_ERROR(model_->Tokenize(text, rest, most, ids));
    }
  }
  return absl::OkStatus();
}

std::optional<std::string> SentencePieceStep::BytesOf(std::string_view token) const {
  const auto byte = ByteOfToken(token);
  if (!byte.has_value()) return std::nullopt;
  return std::string(1, static_cast<char>(*byte));
}

std::unique_ptr<TokenSink> SentencePieceStep::NewSink(TokenSink* next, DecodeMode) const {
  return std::make_unique<SentencePieceSink>(next, &options_);
}

}  // namespace strata
