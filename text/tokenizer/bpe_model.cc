#include "text/tokenizer/bpe_model.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/status.h"
#include "text/tokenizer/byte_alphabet.h"
#include "text/unicode/utf8.h"

namespace strata {
namespace {

constexpr uint32_t kNone = ~uint32_t{0};
constexpr size_t kMaxCharacterBytes = 4;  // Of UTF-8.
// What stands for a blank in SentencePiece's vocabularies: U+2581.
constexpr std::string_view kMark = "\xE2\x96\x81";

// A symbol of the piece: a list linked through indices, so that joining two costs nothing.
struct Symbol {
  uint32_t id = 0;
  uint32_t previous = kNone;
  uint32_t next = kNone;
  bool dead = false;  // Was joined to the one before it.
};

// A merge that may be done: at its place in the list, if what stands there is still the pair.
struct Candidate {
  uint32_t rank = 0;
  uint32_t left = 0;
  uint32_t id = 0;

  // For a heap: the lowest rank comes first, the leftmost among equals.
  bool operator<(const Candidate& other) const {
    return rank != other.rank ? rank > other.rank : left > other.left;
  }
};

absl::Status UnknownMerge(size_t rank, std::string_view token, std::string_view what,
                          std::string_view why = "") {
  return Error(
      absl::StatusCode::kInvalidArgument, "TOKENIZER_INVALID",
      absl::StrCat("merges: entry ", rank, " ", std::string(what), " \"", std::string(token),
                   "\", which is not in the vocabulary", std::string(why)));
}

}  // namespace

struct BpeModel::Scratch {
  std::vector<Symbol> symbols;
  std::vector<Candidate> heap;
  size_t lookups = 0;  // Of merges.
  // A character that is no token, where the vocabulary lacks the token for such.
  std::string unsayable;
};

BpeModel::BpeModel(Vocabulary vocabulary, BpeOptions options)
    : vocabulary_(std::move(vocabulary)), options_(std::move(options)) {
  std::string text;
  for (char32_t c = 0; c < kDirectCharacters; ++c) {
    text.clear();
    AppendUtf8(c, &text);
    character_ids_[c] = vocabulary_.IdOf(text).value_or(kNoToken);
  }
  for (size_t byte = 0; byte < byte_ids_.size(); ++byte) {
    byte_ids_[byte] = vocabulary_.IdOf(absl::StrFormat("<0x%02X>", byte)).value_or(kNoToken);
  }
}

absl::StatusOr<BpeMerge> MergeOfTexts(const Vocabulary& vocabulary, std::string_view left,
                                      std::string_view right, size_t rank, size_t prefix_bytes) {
  const auto left_id = vocabulary.IdOf(left);
  const auto right_id = vocabulary.IdOf(right);
  if (!left_id || !right_id) {
    return UnknownMerge(rank, left_id ? right : left, "joins");
  }
  std::string both(left);
  both.append(right.substr(std::min(prefix_bytes, right.size())));
  const auto made = vocabulary.IdOf(both);
  if (!made) {
    return UnknownMerge(rank, both, "makes",
                        absl::StrCat(" (continuing_subword_prefix has ", prefix_bytes, " bytes)"));
  }
  return BpeMerge{*left_id, *right_id, *made};
}

absl::StatusOr<std::unique_ptr<BpeModel>> BpeModel::Make(
    Vocabulary vocabulary, const std::vector<std::pair<std::string, std::string>>& merges,
    BpeOptions options, std::span<const uint32_t> ranks) {
  std::vector<BpeMerge> by_id;
  by_id.reserve(merges.size());
  for (const auto& [left, right] : merges) {
    ASSIGN_OR_RETURN(const BpeMerge merge,
                     MergeOfTexts(vocabulary, left, right, by_id.size(), options.prefix.size()));
    by_id.push_back(merge);
  }
  return Make(std::move(vocabulary), by_id, std::move(options), ranks);
}

absl::StatusOr<std::unique_ptr<BpeModel>> BpeModel::Make(Vocabulary vocabulary,
                                                         std::span<const BpeMerge> merges,
                                                         BpeOptions options,
                                                         std::span<const uint32_t> ranks) {
  std::unique_ptr<BpeModel> model(new BpeModel(std::move(vocabulary), std::move(options)));
  if (model->options_.unknown_token) {
    model->unknown_id_ = model->vocabulary_.IdOf(*model->options_.unknown_token);
  }
  model->affixes_ = !model->options_.prefix.empty() || !model->options_.suffix.empty();
  model->merges_.reserve(merges.size());
  for (size_t rank = 0; rank < merges.size(); ++rank) {
    model->merges_[Pair(merges[rank].left, merges[rank].right)] = {
        ranks.empty() ? static_cast<uint32_t>(rank) : ranks[rank], merges[rank].made};
  }
  model->LearnMarks(merges);
  return model;
}

void BpeModel::LearnMarks(std::span<const BpeMerge> merges) {
  cut_at_marks_ = !affixes_ && vocabulary_.IdOf(kMark).has_value();
  std::vector<bool> marked(vocabulary_.id_end());
  for (uint32_t id = 0; id < vocabulary_.id_end(); ++id) {
    const std::string* const token = vocabulary_.TokenOf(id);
    marked[id] = token != nullptr && token->starts_with(kMark);
  }
  for (const BpeMerge& merge : merges) {
    if (!marked[merge.right]) {
      continue;
    }
    const std::string& left = *vocabulary_.TokenOf(merge.left);
    if (left.empty()) {
      continue;
    }
    // A byte's token, and that for the unknown, stand for other characters than their own.
    if ((options_.byte_fallback && left.back() == '>') ||
        (options_.unknown_token && left.ends_with(*options_.unknown_token))) {
      cut_at_marks_ = false;
    }
    size_t start = 0;
    glued_.insert(CharBefore(left, left.size(), &start));
  }
}

bool BpeModel::PushBytes(std::string_view character, Scratch* scratch) const {
  for (const char byte : character) {
    if (byte_ids_[static_cast<uint8_t>(byte)] == kNoToken) {
      return false;
    }
  }
  for (const char byte : character) {
    scratch->symbols.push_back({byte_ids_[static_cast<uint8_t>(byte)]});
  }
  return true;
}

std::string BpeModel::Affixed(std::string_view piece, size_t begin, size_t end) const {
  return absl::StrCat(begin > 0 ? options_.prefix : "",
                      std::string(piece.substr(begin, end - begin)),
                      end == piece.size() ? options_.suffix : "");
}

void BpeModel::Begin(std::string_view piece, Scratch* scratch) const {
  std::vector<Symbol>& symbols = scratch->symbols;
  symbols.clear();
  bool unknown = false;  // One that is not said yet: what is said by bytes goes before it.
  const auto flush = [&] {
    if (unknown) {
      symbols.push_back({*unknown_id_});
    }
    unknown = false;
  };
  for (size_t at = 0; at < piece.size();) {
    const size_t begin = at;
    const char32_t c = NextChar(piece, &at);
    std::string_view character = piece.substr(begin, at - begin);
    std::string affixed;
    if (affixes_) {
      affixed = Affixed(piece, begin, at);
      character = affixed;
    }
    const uint32_t id = c < kDirectCharacters && !affixes_
                            ? character_ids_[c]
                            : vocabulary_.IdOf(character).value_or(kNoToken);
    if (id != kNoToken) {
      flush();
      symbols.push_back({id});
    } else if (options_.byte_fallback && PushBytes(character, scratch)) {
      continue;
    } else if (unknown_id_) {
      if (!options_.fuse_unknown) {
        flush();
      }
      unknown = true;
    } else if (options_.unknown_token && scratch->unsayable.empty()) {
      scratch->unsayable = character;
    }
  }
  flush();
  for (size_t i = 0; i < symbols.size(); ++i) {
    symbols[i].previous = i == 0 ? kNone : static_cast<uint32_t>(i - 1);
    symbols[i].next = i + 1 == symbols.size() ? kNone : static_cast<uint32_t>(i + 1);
  }
}

void BpeModel::PushMerge(uint32_t left, uint32_t right, Scratch* scratch) const {
  ++scratch->lookups;
  const auto found = merges_.find(Pair(scratch->symbols[left].id, scratch->symbols[right].id));
  if (found != merges_.end()) {
    scratch->heap.push_back({found->second.rank, left, found->second.id});
    std::push_heap(scratch->heap.begin(), scratch->heap.end());
  }
}

void BpeModel::MergeAll(Scratch* scratch) const {
  std::vector<Symbol>& symbols = scratch->symbols;
  std::vector<Candidate>& heap = scratch->heap;
  heap.clear();
  for (uint32_t i = 0; i + 1 < symbols.size(); ++i) {
    PushMerge(i, i + 1, scratch);
  }
  while (!heap.empty()) {
    const Candidate top = heap.front();
    std::pop_heap(heap.begin(), heap.end());
    heap.pop_back();
    Symbol& left = symbols[top.left];
    if (left.dead || left.next == kNone) {
      continue;
    }
    const uint32_t right_index = left.next;
    Symbol& right = symbols[right_index];
    ++scratch->lookups;
    const auto found = merges_.find(Pair(left.id, right.id));
    if (found == merges_.end() || found->second.id != top.id) {
      continue;  // One of the two has been joined to something else.
    }
    left.id = top.id;
    left.next = right.next;
    right.dead = true;
    if (left.next != kNone) {
      symbols[left.next].previous = top.left;
    }
    if (left.previous != kNone) {
      PushMerge(left.previous, top.left, scratch);
    }
    if (left.next != kNone) {
      PushMerge(top.left, left.next, scratch);
    }
  }
}

size_t BpeModel::CountLookups(std::string_view piece) const {
  Scratch scratch;
  Begin(piece, &scratch);
  MergeAll(&scratch);
  return scratch.lookups;
}

size_t BpeModel::WordEnd(std::string_view piece, size_t begin) const {
  if (!cut_at_marks_) {
    return piece.size();
  }
  for (size_t at = piece.find(kMark, begin + 1); at != std::string_view::npos;
       at = piece.find(kMark, at + kMark.size())) {
    size_t start = 0;
    if (!glued_.contains(CharBefore(piece, at, &start))) {
      return at;
    }
  }
  return piece.size();
}

void BpeModel::TokenizeWord(std::string_view word, Scratch* scratch, PieceCache* seen,
                            std::vector<uint32_t>* ids) const {
  if (seen->Repeat(word, ids)) {
    return;
  }
  const size_t begin = ids->size();
  Begin(word, scratch);
  MergeAll(scratch);
  for (const Symbol& symbol : scratch->symbols) {
    if (!symbol.dead) {
      ids->push_back(symbol.id);
    }
  }
  seen->Add(word, begin, ids->size());
}

absl::Status BpeModel::Tokenize(std::string_view text, std::span<const TextRange> pieces,
                                size_t most, std::vector<uint32_t>* ids) const {
  Scratch scratch;
  PieceCache seen;
  for (const TextRange range : pieces) {
    if (ids->size() > most) {
      break;
    }
    const std::string_view piece = range.Of(text);
    if (options_.ignore_merges) {
      if (const auto id = vocabulary_.IdOf(piece)) {
        ids->push_back(*id);
        continue;
      }
    }
    for (size_t at = 0; at < piece.size() && ids->size() <= most;) {
      const size_t end = WordEnd(piece, at);
      TokenizeWord(piece.substr(at, end - at), &scratch, &seen, ids);
      if (!scratch.unsayable.empty()) {
        return Error(absl::StatusCode::kInvalidArgument, "TEXT_NOT_IN_VOCABULARY",
                     absl::StrCat("the tokenizer has no token for \"", scratch.unsayable,
                                  "\", and its unk_token \"", *options_.unknown_token,
                                  "\" is not in its vocabulary"))
            .Hint("send token ids, or a text without it");
      }
      at = end;
    }
  }
  return absl::OkStatus();
}

size_t BpeModel::max_bytes_per_id(bool byte_alphabet) const {
  const auto has = [](uint32_t id) { return id != kNoToken; };
  const bool each_byte =
      options_.byte_fallback && std::all_of(byte_ids_.begin(), byte_ids_.end(), has);
  // A text may consist of what is dropped, or of what becomes one unknown.
  bool each_character = each_byte || (unknown_id_.has_value() && !options_.fuse_unknown);
  if (byte_alphabet && !each_character && !affixes_) {
    std::string alphabet;
    for (int byte = 0; byte < 256; ++byte) {
      AppendByteLevel(std::string(1, static_cast<char>(byte)), &alphabet);
    }
    each_character = true;
    for (size_t at = 0; at < alphabet.size();) {
      const uint32_t id = character_ids_[NextChar(alphabet, &at)];
      each_character = each_character && has(id);
    }
  }
  return each_character
             ? std::max<size_t>(kMaxCharacterBytes, vocabulary_.LongestToken(byte_alphabet))
             : 0;
}

}  // namespace strata
