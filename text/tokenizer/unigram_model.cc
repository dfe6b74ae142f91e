#include "text/tokenizer/unigram_model.h"

#include <algorithm>
#include <limits>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/status.h"
#include "text/tokenizer/piece_cache.h"
#include "text/unicode/utf8.h"

namespace strata {
namespace {

// How much worse than the worst token an unknown character is.
constexpr double kUnknownPenalty = 10.0;
constexpr uint32_t kNowhere = ~uint32_t{0};

absl::Status UnigramInvalid(std::string_view what) {
  return Error(absl::StatusCode::kInvalidArgument, "TOKENIZER_INVALID", what);
}

}  // namespace

// The best way from the beginning to an offset.
struct UnigramModel::Node {
  double score = 0;
  uint32_t from = kNowhere;  // Where its last token begins.
  uint32_t id = 0;           // Of its last token.

  // `single`: sums are float32.
  void Offer(double other_score, uint32_t other_from, uint32_t other_id, bool single) {
    if (single) {
      other_score = static_cast<float>(other_score);
    }
    if (from == kNowhere || other_score > score) {
      score = other_score;
      from = other_from;
      id = other_id;
    }
  }
};

absl::StatusOr<std::unique_ptr<UnigramModel>> UnigramModel::Make(
    // They are moved from. NOLINTNEXTLINE(performance-unnecessary-value-param)
    std::vector<std::pair<std::string, double>> tokens, UnigramOptions options) {
  if (tokens.empty()) {
    return UnigramInvalid("model Unigram: vocab is empty");
  }
  if (options.unknown_id && *options.unknown_id >= tokens.size()) {
    return UnigramInvalid(absl::StrCat("model Unigram: unk_id ", *options.unknown_id,
                                       " is no token, of ", tokens.size()));
  }
  std::vector<std::pair<std::string, uint64_t>> numbered;
  std::vector<double> scores;
  double lowest = std::numeric_limits<double>::infinity();
  for (auto& [token, score] : tokens) {
    if (token.size() > kMaxTokenBytes) {
      return Error(absl::StatusCode::kInvalidArgument, "TOKENIZER_INVALID",
                   absl::StrCat("token ", scores.size(), " is ", token.size(), " bytes long"))
          .Limit(absl::StrCat("unigram_token_bytes=", kMaxTokenBytes));
    }
    numbered.emplace_back(std::move(token), scores.size());
    const size_t id = scores.size();
    scores.push_back(score);
    if (id >= options.unmatched.size() || !options.unmatched[id]) {
      lowest = std::min(lowest, score);
    }
  }
  ASSIGN_OR_RETURN(Vocabulary vocabulary,
                   Vocabulary::Make(std::move(numbered), Vocabulary::Twice::kLastWins));
  std::unique_ptr<UnigramModel> model(new UnigramModel(std::move(vocabulary), std::move(options)));
  model->scores_ = std::move(scores);
  model->unknown_score_ = lowest - kUnknownPenalty;
  for (uint32_t id = 0; id < model->scores_.size(); ++id) {
    if (id < model->options_.unmatched.size() && model->options_.unmatched[id]) {
      continue;
    }
    const std::string& token = *model->vocabulary_.TokenOf(id);
    model->trie_.Add(token, *model->vocabulary_.IdOf(token));
  }
  for (size_t byte = 0; byte < model->byte_ids_.size(); ++byte) {
    model->byte_ids_[byte] =
        model->vocabulary_.IdOf(absl::StrFormat("<0x%02X>", byte)).value_or(kNoToken);
  }
  return model;
}

absl::Status UnigramModel::FindBest(std::string_view piece, std::vector<Node>* nodes) const {
  nodes->assign(piece.size() + 1, Node{});
  for (size_t at = 0; at < piece.size();) {
    size_t next = at;
    NextChar(piece, &next);
    const double score = (*nodes)[at].score;
    const auto from = static_cast<uint32_t>(at);
    bool single = false;
    trie_.ForEachPrefix(piece, at, [&](size_t length, uint32_t id) {
      (*nodes)[at + length].Offer(score + scores_[id], from, id, options_.as_sentencepiece);
      single |= at + length == next;
    });
    if (!single) {
      if (!options_.unknown_id) {
        return Error(absl::StatusCode::kInvalidArgument, "TOKENIZER_NO_UNKNOWN",
                     absl::StrCat("the vocabulary has no token for \"",
                                  std::string(piece.substr(at, next - at)), "\", nor an unk_id"))
            .Hint("leave the character out");
      }
      (*nodes)[next].Offer(score + unknown_score_, from, *options_.unknown_id,
                           options_.as_sentencepiece);
    }
    at = next;
  }
  return absl::OkStatus();
}

void UnigramModel::AppendUnknown(std::string_view run, std::vector<uint32_t>* ids) const {
  // Several unknowns may make a token.
  if (const auto id = vocabulary_.IdOf(run); id && !options_.as_sentencepiece) {
    ids->push_back(*id);
    return;
  }
  const auto id_of = [this](char c) { return byte_ids_[static_cast<uint8_t>(c)]; };
  if (options_.byte_fallback &&
      std::all_of(run.begin(), run.end(), [&](char c) { return id_of(c) != kNoToken; })) {
    std::transform(run.begin(), run.end(), std::back_inserter(*ids), id_of);
    return;
  }
  ids->push_back(*options_.unknown_id);
}

void UnigramModel::AppendBest(std::string_view piece, std::vector<Node>* nodes,
                              std::vector<uint32_t>* ids) const {
  // Turns the way around: each node's `from` then says where the token that begins there ends.
  uint32_t end = static_cast<uint32_t>(piece.size());
  uint32_t beyond = kNowhere;
  uint32_t id_beyond = 0;
  for (uint32_t at = end;;) {
    Node& node = (*nodes)[at];
    const uint32_t from = node.from;
    const uint32_t id = node.id;
    node.from = beyond;
    node.id = id_beyond;
    if (at == 0) {
      break;
    }
    beyond = at;
    id_beyond = id;
    at = from;
  }
  for (uint32_t at = 0; at < end;) {
    const uint32_t begin = at;
    const uint32_t id = (*nodes)[at].id;
    at = (*nodes)[at].from;
    if (!options_.unknown_id || id != *options_.unknown_id) {
      ids->push_back(id);
      continue;
    }
    while (at < end && (*nodes)[at].id == id) {
      at = (*nodes)[at].from;
    }
    AppendUnknown(piece.substr(begin, at - begin), ids);
  }
}

absl::Status UnigramModel::Tokenize(std::string_view text, std::span<const TextRange> pieces,
                                    size_t most, std::vector<uint32_t>* ids) const {
  PieceCache seen;
  std::vector<Node> nodes;
  for (const TextRange range : pieces) {
    if (ids->size() > most) {
      break;
    }
    const std::string_view piece = range.Of(text);
    if (seen.Repeat(piece, ids)) {
      continue;
    }
    const size_t begin = ids->size();
    RETURN_IF_ERROR(FindBest(piece, &nodes));
    AppendBest(piece, &nodes, ids);
    seen.Add(piece, begin, ids->size());
  }
  return absl::OkStatus();
}

size_t UnigramModel::max_bytes_per_id(bool byte_alphabet) const {
  // Else a run of what is unknown becomes one id, however long.
  const bool each_byte =
      options_.byte_fallback &&
      std::none_of(byte_ids_.begin(), byte_ids_.end(), [](uint32_t id) { return id == kNoToken; });
  return each_byte ? vocabulary_.LongestToken(byte_alphabet) : 0;
}

}  // namespace strata
