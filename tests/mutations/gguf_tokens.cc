#include "tests/mutations/gguf_tokens.h"

#include <cstdio>
#include <map>
#include <optional>

namespace strata::testing {
namespace {

// The numbers of tokenizer.ggml.token_type.
constexpr double kUnknown = 2;
constexpr double kControl = 3;
constexpr double kUserDefined = 4;

class TokenReading {
 public:
  explicit TokenReading(const GgufKeys& keys) : keys_(keys) {
    for (const std::string& text : keys.at("tokenizer.ggml.tokens").texts) {
      ids_.emplace(text, static_cast<uint32_t>(ids_.size()));
      texts_.push_back(text);
    }
  }

  // Without kinds every token is a normal one.
  double KindOf(uint32_t id) const {
    const auto kinds = keys_.find("tokenizer.ggml.token_type");
    return kinds == keys_.end() || kinds->second.numbers.empty() ? 1 : kinds->second.numbers[id];
  }

  std::vector<uint32_t> Tokens(const std::string& text) {
    Around("bos", Adds("bos", IsSentencePiece() || Text("tokenizer.ggml.pre") == "llama-bpe"));
    std::string letters;
    for (size_t at = 0; at < text.size();) {
      const std::optional<uint32_t> special = SpecialAt(text, at);
      if (!special.has_value()) {
        letters += text[at++];
        continue;
      }
      Letters(letters);
      letters.clear();
      out_.push_back(*special);
      begins_ = IdIs("bos", *special);
      at += texts_[*special].size();
    }
    Letters(letters);
    Around("eos", Adds("eos", false));
    return out_;
  }

 private:
  std::string Text(const std::string& key) const {
    const auto found = keys_.find(key);
    return found == keys_.end() || found->second.texts.empty() ? "" : found->second.texts[0];
  }
  bool IsSentencePiece() const { return Text("tokenizer.ggml.model") == "llama"; }
  bool Flag(const std::string& key, bool absent) const {
    const auto found = keys_.find(key);
    return found == keys_.end() ? absent : found->second.numbers.at(0) != 0;
  }
  bool Adds(const std::string& name, bool absent) const {
    return Flag("tokenizer.ggml.add_" + name + "_token", absent);
  }
  bool IdIs(const std::string& name, uint32_t id) const {
    const auto found = keys_.find("tokenizer.ggml." + name + "_token_id");
    return found != keys_.end() && found->second.numbers.at(0) == id;
  }
  void Around(const std::string& name, bool adds) {
    const auto found = keys_.find("tokenizer.ggml." + name + "_token_id");
    if (adds && found != keys_.end()) {
      out_.push_back(static_cast<uint32_t>(found->second.numbers.at(0)));
    }
  }

  // The longest one that the text has there.
  std::optional<uint32_t> SpecialAt(const std::string& text, size_t at) const {
    std::optional<uint32_t> longest;
    for (uint32_t id = 0; id < texts_.size(); ++id) {
      const double kind = KindOf(id);
      const bool special = kind == kUnknown || kind == kControl || kind == kUserDefined;
      if (special && !texts_[id].empty() && text.compare(at, texts_[id].size(), texts_[id]) == 0 &&
          (!longest.has_value() || texts_[id].size() > texts_[*longest].size())) {
        longest = id;
      }
    }
    return longest;
  }

  void Letters(const std::string& letters) {
    if (letters.empty()) return;
    if (!IsSentencePiece()) {
      for (const char byte : letters) Add(ids_.find(OfByte(static_cast<uint8_t>(byte))));
      return;
    }
    const bool prefix = begins_ && Flag("tokenizer.ggml.add_space_prefix", true);
    begins_ = false;
    const std::string text = (prefix ? "\u2581" : "") + letters;
    bool unknown = false;
    for (size_t at = 0; at < text.size();) {
      size_t end = at + 1;
      while (end < text.size() && (text[end] & 0xc0) == 0x80) ++end;
      unknown = Letter(text.substr(at, end - at), unknown);
      at = end;
    }
  }

  // One as a token, or as its bytes', or, several together, as the unknown one.
  bool Letter(const std::string& letter, bool after_unknown) {
    if (const auto found = ids_.find(letter); found != ids_.end()) {
      out_.push_back(found->second);
      return false;
    }
    std::vector<uint32_t> bytes;
    for (const char byte : letter) {
      char name[8];
      std::snprintf(name, sizeof(name), "<0x%02X>", static_cast<uint8_t>(byte));
      if (const auto found = ids_.find(name); found != ids_.end()) bytes.push_back(found->second);
    }
    if (bytes.size() == letter.size()) {
      out_.insert(out_.end(), bytes.begin(), bytes.end());
      return false;
    }
    for (uint32_t id = 0; id < texts_.size(); ++id) {
      if (KindOf(id) == kUnknown) {
        if (!after_unknown) out_.push_back(id);
        return true;
      }
    }
    return false;
  }

  void Add(std::map<std::string, uint32_t>::const_iterator found) {
    if (found != ids_.end()) out_.push_back(found->second);
  }

  // The character that stands for a byte in byte-level vocabularies: printable ones of Latin-1 for
  // themselves, the others from U+0100 on.
  static std::string OfByte(uint8_t byte) {
    const auto printable = [](uint32_t b) {
      return (b >= '!' && b <= '~') || (b >= 0xa1 && b <= 0xac) || (b >= 0xae && b <= 0xff);
    };
    uint32_t code = byte;
    if (!printable(byte)) {
      code = 0x100;
      for (uint32_t b = 0; b < byte; ++b) code += printable(b) ? 0 : 1;
    }
    if (code < 0x80) return std::string(1, static_cast<char>(code));
    return {static_cast<char>(0xc0 | code >> 6), static_cast<char>(0x80 | (code & 0x3f))};
  }

  const GgufKeys& keys_;
  std::map<std::string, uint32_t> ids_;
  std::vector<std::string> texts_;
  std::vector<uint32_t> out_;
  bool begins_ =
      true;  // Whether a text begins here: at first, and behind the token that begins one.
};

}  // namespace

std::string SampleText(const GgufKeys& keys) {
  const TokenReading reading(keys);
  const std::vector<std::string>& tokens = keys.at("tokenizer.ggml.tokens").texts;
  uint32_t special = 0;
  while (special + 1 < tokens.size() && reading.KindOf(special) != kControl) ++special;
  return "Hi" + tokens[special] + "\u00e9t";
}

std::vector<uint32_t> GgufTokensOf(const GgufKeys& keys, const std::string& text) {
  return TokenReading(keys).Tokens(text);
}

}  // namespace strata::testing
