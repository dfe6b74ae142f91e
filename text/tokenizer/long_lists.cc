#include "text/tokenizer/long_lists.h"

#include "absl/strings/str_cat.h"
#include "text/unicode/utf8.h"

namespace strata {
namespace {

// Values of both lists, as many as a file may have.
constexpr size_t kMostListed = 16'000'000;
constexpr uint64_t kMostId = UINT32_MAX;

// Reads JSON from a place on. After what is not as it should be, `ok` is false.
class ListScanner {
 public:
  ListScanner(std::string_view json, LongLists* lists) : json_(json), lists_(lists) {}

  // Whether `model` has both lists; `rest` is the file without them.
  bool Scan() {
    if (!Open('{')) {
      return false;
    }
    bool found = false;
    for (bool first = true; ok_ && !Closes('}', &first);) {
      const std::string_view key = Key();
      if (key == "model" && !found) {
        found = ScanModel();
      } else {
        ok_ = ok_ && key != "model";  // Which of two counts is for the tree to say.
        Skip();
      }
    }
    SkipBlanks();
    if (!ok_ || !found || at_ != json_.size()) {
      return false;
    }
    absl::StrAppend(&lists_->rest, std::string(json_.substr(said_)));
    return true;
  }

 private:
  bool ScanModel() {
    if (!Open('{')) {
      return false;
    }
    bool bpe = false, vocab = false, merges = false;
    for (bool first = true; ok_ && !Closes('}', &first);) {
      const std::string_view key = Key();
      SkipBlanks();
      if (key == "vocab" && bpe && !vocab) {
        vocab = true;
        TakeList(&ListScanner::Vocab, "{}");
      } else if (key == "merges" && bpe && !merges) {
        merges = true;
        TakeList(&ListScanner::Merges, "[]");
      } else {
        ok_ = ok_ && key != "vocab" && key != "merges";
        const size_t begin = at_;
        Skip();
        bpe = bpe || (key == "type" && json_.substr(begin, at_ - begin) == "\"BPE\"");
      }
    }
    return vocab && merges;
  }

  // Reads a list, in place of which `instead` stands in `rest`.
  void TakeList(void (ListScanner::*read)(), const char* instead) {
    absl::StrAppend(&lists_->rest, std::string(json_.substr(said_, at_ - said_)), instead);
    (this->*read)();
    said_ = at_;
  }

  void Vocab() {
    ok_ = ok_ && Open('{');
    for (bool first = true; ok_ && !Closes('}', &first);) {
      const std::string_view token = Key();
      SkipBlanks();
      lists_->vocab.emplace_back(token, Number());
      ok_ = ok_ && lists_->vocab.size() < kMostListed;
    }
  }

  // ["a b", ...] or [["a", "b"], ...].
  void Merges() {
    ok_ = ok_ && Open('[');
    for (bool first = true; ok_ && !Closes(']', &first);) {
      SkipBlanks();
      if (Peek() == '"') {
        const std::string_view both = Text();
        const size_t blank = both.find(' ');
        if (both.starts_with("#version")) {
          continue;
        }
        ok_ = ok_ && blank != both.npos && both.find(' ', blank + 1) == both.npos;
        if (ok_) {
          lists_->merges.emplace_back(both.substr(0, blank), both.substr(blank + 1));
        }
      } else {
        ok_ = ok_ && Open('[');
        SkipBlanks();
        const std::string_view left = Text();
        SkipBlanks();
        ok_ = ok_ && Open(',');
        SkipBlanks();
        const std::string_view right = Text();
        SkipBlanks();
        ok_ = ok_ && Open(']');
        lists_->merges.emplace_back(left, right);
      }
      ok_ = ok_ && 2 * lists_->merges.size() < kMostListed;
    }
  }

  char Peek() const { return at_ < json_.size() ? json_[at_] : '\0'; }
  void SkipBlanks() {
    while (at_ < json_.size() &&
           (json_[at_] == ' ' || json_[at_] == '\n' || json_[at_] == '\r' || json_[at_] == '\t')) {
      ++at_;
    }
  }
  bool Open(char c) {
    SkipBlanks();
    ok_ = ok_ && Peek() == c;
    at_ += ok_ ? 1 : 0;
    return ok_;
  }
  // Whether what was opened ends here, behind which, or before the next of its members, is `at_`.
  bool Closes(char c, bool* first) {
    SkipBlanks();
    if (Peek() == c) {
      ++at_;
      return true;
    }
    if (!*first) {
      Open(',');
      SkipBlanks();
    }
    *first = false;
    return !ok_;
  }
  std::string_view Key() {
    SkipBlanks();
    const std::string_view key = Text();
    Open(':');
    return key;
  }

  // A string of well-formed UTF-8.
  std::string_view Text() {
    if (!ok_ || Peek() != '"') {
      ok_ = false;
      return {};
    }
    const size_t begin = ++at_;
    bool escapes = false, ascii = true;
    for (; at_ < json_.size() && json_[at_] != '"'; ++at_) {
      const auto c = static_cast<uint8_t>(json_[at_]);
      if (c < 0x20) {
        break;
      }
      if (c == '\\') {
        escapes = true;
        ++at_;
      }
      ascii = ascii && c < 0x80;
    }
    if (at_ >= json_.size() || json_[at_] != '"') {
      at_ = std::min(at_, json_.size());  // A backslash may be the last byte.
      ok_ = false;
      return {};
    }
    const std::string_view text = json_.substr(begin, at_ - begin);
    ++at_;
    ok_ = ascii || !FirstInvalidUtf8(text);
    return escapes && ok_ ? Unescaped(text) : text;
  }

  std::string_view Unescaped(std::string_view text) {
    std::string out;
    for (size_t i = 0; i < text.size() && ok_; ++i) {
      if (text[i] != '\\') {
        out.push_back(text[i]);
        continue;
      }
      constexpr std::string_view kNames = "\"\\/bfnrt";
      constexpr std::string_view kMeant = "\"\\/\b\f\n\r\t";
      ++i;
      if (const size_t name = kNames.find(text[i]); name != kNames.npos) {
        out.push_back(kMeant[name]);
      } else {
        ok_ = text[i] == 'u' && AppendCodes(text, &i, &out);
      }
    }
    return lists_->texts.emplace_back(std::move(out));
  }

  // "uXXXX" at *i, or a pair of surrogates; *i is then the last digit.
  bool AppendCodes(std::string_view text, size_t* i, std::string* out) const {
    const auto four = [&](size_t at, uint32_t* code) {
      *code = 0;
      for (size_t k = at; k < at + 4; ++k) {
        const char c = k < text.size() ? text[k] : '\0';
        const int digit = c >= '0' && c <= '9'   ? c - '0'
                          : c >= 'a' && c <= 'f' ? c - 'a' + 10
                          : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                                 : -1;
        if (digit < 0) {
          return false;
        }
        *code = *code * 16 + static_cast<uint32_t>(digit);
      }
      return true;
    };
    uint32_t code = 0, low = 0;
    if (!four(*i + 1, &code)) {
      return false;
    }
    *i += 4;
    if (code >= 0xd800 && code < 0xdc00) {
      if (text.substr(*i + 1, 2) != "\\u" || !four(*i + 3, &low) || low < 0xdc00 || low > 0xdfff) {
        return false;
      }
      *i += 6;
      code = 0x10000 + ((code - 0xd800) << 10) + (low - 0xdc00);
    }
    if (code >= 0xd800 && code <= 0xdfff) {
      return false;
    }
    AppendUtf8(code, out);
    return true;
  }

  uint64_t Number() {
    const size_t begin = at_;
    uint64_t number = 0;
    for (; at_ < json_.size() && json_[at_] >= '0' && json_[at_] <= '9' && number <= kMostId;
         ++at_) {
      number = number * 10 + static_cast<uint64_t>(json_[at_] - '0');
    }
    // No leading zeros, and no fraction or exponent behind.
    const bool zeros = json_.substr(begin, 1) == "0" && at_ - begin > 1;
    const char next = Peek();
    ok_ = ok_ && at_ > begin && !zeros && number <= kMostId &&
          (next == ',' || next == '}' || next == ' ' || next == '\n' || next == '\r');
    return number;
  }

  // Past a value of any kind. What is in it is for the tree to check.
  void Skip() {
    SkipBlanks();
    size_t depth = 0;
    bool in_string = false;
    for (; ok_ && at_ < json_.size(); ++at_) {
      const char c = json_[at_];
      if (in_string) {
        at_ += c == '\\' ? 1 : 0;
        in_string = c != '"';
        if (!in_string && depth == 0) {
          ++at_;
          return;
        }
      } else if (c == '"') {
        in_string = true;
      } else if (c == '{' || c == '[') {
        ++depth;
      } else if (c == '}' || c == ']') {
        if (depth == 0) {
          return;
        }
        if (--depth == 0) {
          ++at_;
          return;
        }
      } else if (c == ',' && depth == 0) {
        return;
      }
    }
    ok_ = false;
  }

  const std::string_view json_;
  LongLists* const lists_;
  size_t at_ = 0;
  size_t said_ = 0;  // What is in `rest` already, or in place of which something is.
  bool ok_ = true;
};

}  // namespace

std::optional<LongLists> TakeLongLists(std::string_view json) {
  LongLists lists;
  if (!ListScanner(json, &lists).Scan()) {
    return std::nullopt;
  }
  return lists;
}

}  // namespace strata
