#include "text/tools/json_scanner.h"

namespace strata {
namespace {

constexpr size_t kMaxDepth = 64;

bool IsSpace(char c) { return c == ' ' || c == '\n' || c == '\r' || c == '\t'; }
bool IsDigit(char c) { return c >= '0' && c <= '9'; }
bool IsHex(char c) { return IsDigit(c) || (c >= 'a' && c <= 'f') || (c >= 'A' && c <= 'F'); }

void AppendEscaped(char byte, std::string* out) {
  constexpr char kDigits[] = "0123456789abcdef";
  const auto c = static_cast<unsigned char>(byte);
  switch (byte) {
    case '"':
      *out += "\\\"";
      return;
    case '\\':
      *out += "\\\\";
      return;
    case '\n':
      *out += "\\n";
      return;
    case '\r':
      *out += "\\r";
      return;
    case '\t':
      *out += "\\t";
      return;
    default:
      if (c < 0x20) {
        *out += "\\u00";
        *out += kDigits[c >> 4];
        *out += kDigits[c & 15];
      } else {
        *out += byte;
      }
  }
}

}  // namespace

JsonScanner::Result JsonScanner::EndValue() {
  if (open_.empty()) {
    return Result::kEnds;
  }
  state_ = State::kCommaOrEnd;
  return Result::kMore;
}

JsonScanner::Result JsonScanner::Close(char open) {
  if (open_.empty() || open_.back() != open) {
    return Result::kBad;
  }
  open_.pop_back();
  return EndValue();
}

JsonScanner::Result JsonScanner::BeginValue(char byte) {
  switch (byte) {
    case '{':
    case '[':
      if (open_.size() == kMaxDepth) {
        return Result::kBad;
      }
      open_.push_back(byte);
      state_ = byte == '{' ? State::kKeyOrEnd : State::kValueOrEnd;
      return Result::kMore;
    case '"':
      in_key_ = false;
      state_ = State::kString;
      return Result::kMore;
    case 't':
      word_left_ = "rue";
      break;
    case 'f':
      word_left_ = "alse";
      break;
    case 'n':
      word_left_ = "ull";
      break;
    case '-':
      state_ = State::kMinus;
      return Result::kMore;
    default:
      if (!IsDigit(byte)) {
        return Result::kBad;
      }
      state_ = byte == '0' ? State::kZero : State::kDigits;
      return Result::kMore;
  }
  state_ = State::kWord;
  return Result::kMore;
}

bool JsonScanner::CanEnd() const { return open_.empty() && NumberIsWhole(); }

bool JsonScanner::NumberIsWhole() const {
  return state_ == State::kZero || state_ == State::kDigits || state_ == State::kFraction ||
         state_ == State::kExponentDigits;
}

JsonScanner::Result JsonScanner::InNumber(char byte) {
  const bool whole = state_ == State::kZero || state_ == State::kDigits;
  if (IsDigit(byte)) {
    switch (state_) {
      case State::kMinus:
        state_ = byte == '0' ? State::kZero : State::kDigits;
        return Result::kMore;
      case State::kZero:
        return Result::kBad;
      case State::kPoint:
        state_ = State::kFraction;
        return Result::kMore;
      case State::kExponent:
      case State::kExponentSign:
        state_ = State::kExponentDigits;
        return Result::kMore;
      default:
        return Result::kMore;
    }
  }
  if (byte == '.' && whole) {
    state_ = State::kPoint;
    return Result::kMore;
  }
  if ((byte == 'e' || byte == 'E') && (whole || state_ == State::kFraction)) {
    state_ = State::kExponent;
    return Result::kMore;
  }
  if ((byte == '+' || byte == '-') && state_ == State::kExponent) {
    state_ = State::kExponentSign;
    return Result::kMore;
  }
  return NumberIsWhole() ? Result::kEndedAgo : Result::kBad;
}

JsonScanner::Result JsonScanner::Add(char byte, std::string* out) {
  if (state_ >= State::kMinus) {
    const Result result = InNumber(byte);
    if (result == Result::kMore) {
      *out += byte;
      return result;
    }
    if (result == Result::kBad || open_.empty()) {
      return result;
    }
    state_ = State::kCommaOrEnd;  // The number ended, and this byte is what follows it.
  }
  if (state_ == State::kString && static_cast<unsigned char>(byte) < 0x20) {
    AppendEscaped(byte, out);
    return Result::kMore;
  }
  const auto result = [&] {
    switch (state_) {
      case State::kString:
        if (byte == '\\') {
          state_ = State::kEscape;
        } else if (byte == '"') {
          if (!in_key_) {
            return EndValue();
          }
          state_ = State::kColon;
        }
        return Result::kMore;
      case State::kEscape:
        if (byte == 'u') {
          hex_left_ = 4;
          state_ = State::kHex;
          return Result::kMore;
        }
        state_ = State::kString;
        return std::string_view("\"\\/bfnrt").find(byte) == std::string_view::npos ? Result::kBad
                                                                                   : Result::kMore;
      case State::kHex:
        if (!IsHex(byte)) {
          return Result::kBad;
        }
        if (--hex_left_ == 0) {
          state_ = State::kString;
        }
        return Result::kMore;
      case State::kWord:
        if (byte != word_left_.front()) {
          return Result::kBad;
        }
        word_left_.remove_prefix(1);
        return word_left_.empty() ? EndValue() : Result::kMore;
      default:
        break;
    }
    if (IsSpace(byte)) {
      return Result::kMore;
    }
    switch (state_) {
      case State::kValueOrEnd:
        return byte == ']' ? Close('[') : BeginValue(byte);
      case State::kValue:
        return BeginValue(byte);
      case State::kKeyOrEnd:
      case State::kKey:
        if (byte == '}' && state_ == State::kKeyOrEnd) {
          return Close('{');
        }
        in_key_ = true;
        state_ = State::kString;
        return byte == '"' ? Result::kMore : Result::kBad;
      case State::kColon:
        state_ = State::kValue;
        return byte == ':' ? Result::kMore : Result::kBad;
      default:  // kCommaOrEnd.
        if (byte == ',') {
          state_ = open_.back() == '{' ? State::kKey : State::kValue;
          return Result::kMore;
        }
        return byte == '}' ? Close('{') : byte == ']' ? Close('[') : Result::kBad;
    }
  }();
  if (result != Result::kBad) {
    *out += byte;
  }
  return result;
}

std::string JsonEscaped(std::string_view text) {
  std::string out;
  for (const char byte : text) {
    AppendEscaped(byte, &out);
  }
  return out;
}

bool IsJson(std::string_view text) {
  JsonScanner scanner;
  std::string same;
  bool ended = false;
  for (const char byte : text) {
    if (ended || (same.empty() && IsSpace(byte))) {
      if (!IsSpace(byte)) {
        return false;
      }
      continue;
    }
    switch (scanner.Add(byte, &same)) {
      case JsonScanner::Result::kBad:
        return false;
      case JsonScanner::Result::kEnds:
        ended = true;
        break;
      case JsonScanner::Result::kEndedAgo:
        if (!IsSpace(byte)) {
          return false;
        }
        ended = true;
        break;
      case JsonScanner::Result::kMore:
        if (same.back() != byte) {
          return false;  // It had to be escaped.
        }
        break;
    }
  }
  return ended || scanner.CanEnd();
}

}  // namespace strata
