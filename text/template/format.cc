#include "text/template/format.h"

#include <algorithm>
#include <cmath>
#include <cstdio>

#include "text/template/builtins.h"
#include "text/template/escape.h"
#include "text/template/integer.h"
#include "text/template/operators.h"
#include "text/template/printing.h"
#include "text/template/text.h"
#include "text/unicode/utf8.h"

namespace strata::jinja {
namespace {

std::string ToAscii(const std::string& text) {
  std::string out;
  for (size_t at = 0; at < text.size();) {
    const CodePoint c = DecodeAt(text, at);
    if (c.value < 0x80) {
      out.push_back(static_cast<char>(c.value));
    } else {
      char buffer[16];
      std::snprintf(buffer, sizeof(buffer),
                    c.value < 0x100     ? "\\x%02x"
                    : c.value < 0x10000 ? "\\u%04x"
                                        : "\\U%08x",
                    static_cast<unsigned>(c.value));
      out += buffer;
    }
    at += c.bytes;
  }
  return out;
}

std::string FirstCharacters(const std::string& text, int64_t count) {
  return count < 0 ? text : text.substr(0, ByteOffset(text, static_cast<size_t>(count)));
}

std::string Upper(std::string text) {
  std::transform(text.begin(), text.end(), text.begin(),
                 [](char c) { return c >= 'a' && c <= 'z' ? static_cast<char>(c - 32) : c; });
  return text;
}

// Digits of an integer in the base of a type d, x, X, o, b, without sign and prefix.
std::string IntegerDigits(const Value& v, char type, bool* negative) {
  const int base = type == 'x' || type == 'X' ? 16 : type == 'o' ? 8 : type == 'b' ? 2 : 10;
  std::string digits = IntegerToString(v.Is(Kind::kBool) ? Value::Int(v.integer()) : v, base);
  *negative = digits[0] == '-';
  if (*negative) {
    digits.erase(0, 1);
  }
  return type == 'X' ? Upper(std::move(digits)) : digits;
}

std::string CharacterOf(const Value& v) {
  if (v.IsString() && CountCodePoints(v.text()) == 1) {
    return v.text();
  }
  if (!v.IsInteger() || v.integer() < 0 || v.integer() > 0x10FFFF) {
    Fail("%c requires int or char");
  }
  std::string out;
  AppendUtf8(static_cast<char32_t>(v.integer()), &out);
  return out;
}

class PercentFormatter {
 public:
  PercentFormatter(Runtime& runtime, const Value& format, const Value& values)
      : runtime_(runtime), format_(format.text()), safe_(format.safe()), values_(values) {}

  Value Run() {
    while (at_ < format_.size()) {
      if (format_[at_] != '%') {
        const size_t end = std::min(format_.find('%', at_), format_.size());
        out_.append(format_, at_, end - at_);
        at_ = end;
      } else {
        ++at_;
        Directive();
      }
      runtime_.CheckBytes(out_.size());
    }
    const bool unused = values_.Is(Kind::kTuple)
                            ? next_ < values_.items().size()
                            : next_ == 0 && !values_.Is(Kind::kDict) && !values_.Is(Kind::kList) &&
                                  !values_.IsUndefined();
    if (unused) {
      Fail("not all arguments converted during string formatting");
    }
    return runtime_.String(std::move(out_), safe_);
  }

 private:
  char Take() {
    if (at_ >= format_.size()) {
      Fail("incomplete format");
    }
    return format_[at_++];
  }

  Value NextValue() {
    if (values_.Is(Kind::kTuple)) {
      if (next_ >= values_.items().size()) {
        Fail("not enough arguments for format string");
      }
      return values_.items()[next_++];
    }
    if (next_++ > 0) {
      Fail("not enough arguments for format string");
    }
    return values_;
  }

  // A number in the format, or * for one of the values.
  int64_t Number(int64_t fallback) {
    if (at_ < format_.size() && format_[at_] == '*') {
      ++at_;
      const Value v = NextValue();
      if (!v.IsInteger()) {
        Fail("* wants int");
      }
      return v.integer();
    }
    int64_t number = fallback;
    while (at_ < format_.size() && format_[at_] >= '0' && format_[at_] <= '9') {
      number = std::min<int64_t>((number < 0 ? 0 : number) * 10 + (format_[at_++] - '0'),
                                 int64_t{1} << 40);
    }
    return number;
  }

  void Directive() {
    Value value;
    bool named = false;
    if (at_ < format_.size() && format_[at_] == '(') {
      const size_t end = format_.find(')', at_);
      if (end == format_.npos) {
        Fail("incomplete format key");
      }
      if (!values_.Is(Kind::kDict)) {
        Fail("format requires a mapping");
      }
      const std::string key = format_.substr(at_ + 1, end - at_ - 1);
      const Value* found = values_.As<DictObject>().Find(key);
      if (found == nullptr) {
        Fail("the mapping has no key '" + key + "'");
      }
      value = *found;
      named = true;
      next_ = 1;
      at_ = end + 1;
    }
    std::string flags;
    while (at_ < format_.size() &&
           std::string_view("-+ #0").find(format_[at_]) != std::string_view::npos) {
      flags.push_back(format_[at_++]);
    }
    int64_t width = Number(0);
    const auto has = [&flags](char c) { return flags.find(c) != flags.npos; };
    bool left = has('-');
    if (width < 0) {
      left = true;
      width = -width;
    }
    int64_t precision = -1;
    if (at_ < format_.size() && format_[at_] == '.') {
      ++at_;
      precision = std::max<int64_t>(Number(0), 0);
    }
    while (at_ < format_.size() &&
           std::string_view("hlL").find(format_[at_]) != std::string_view::npos) {
      ++at_;
    }
    const char type = Take();
    if (type == '%') {
      out_.push_back('%');
      return;
    }
    if (!named) {
      value = NextValue();
    }
    std::string sign;
    std::string body = Convert(value, type, flags, precision, &sign);
    const bool zero = has('0') && !left &&
                      std::string_view("sra").find(type) == std::string_view::npos && type != 'c';
    if (zero) {
      body = Pad(runtime_, body, width - static_cast<int64_t>(sign.size()), "0", '>');
    }
    out_ += Pad(runtime_, sign + body, width, " ", left ? '<' : '>');
  }

  std::string Convert(const Value& value, char type, const std::string& flags, int64_t precision,
                      std::string* sign) {
    const bool alternate = flags.find('#') != flags.npos;
    bool negative = false;
    std::string body;
    switch (type) {
      case 's':
      case 'r':
      case 'a': {
        body = type == 's' ? ToString(runtime_, value) : ToRepr(runtime_, value);
        body = FirstCharacters(type == 'a' ? ToAscii(body) : body, precision);
        const bool escape = safe_ && !(value.IsString() && value.safe());
        return escape ? Escaped(runtime_, body) : body;
      }
      case 'c':
        return CharacterOf(value);
      case 'd':
      case 'i':
      case 'u':
      case 'x':
      case 'X':
      case 'o': {
        if (!value.IsNumber() || (value.Is(Kind::kFloat) &&
                                  std::string_view("xXo").find(type) != std::string_view::npos)) {
          Fail(std::string("%") + type + " format: a real number is required, not " +
               std::string(TypeName(value)));
        }
        if (value.Is(Kind::kFloat) && !std::isfinite(value.real())) {
          Fail("cannot convert a float that is not finite to integer");
        }
        const Value integer = value.Is(Kind::kFloat) ? IntegerOf(runtime_, value.real()) : value;
        body = IntegerDigits(integer, type, &negative);
        body = Pad(runtime_, body, precision, "0", '>');
        if (alternate && (type == 'x' || type == 'X' || type == 'o')) {
          *sign = std::string("0") + type;
        }
        break;
      }
      case 'e':
      case 'E':
      case 'f':
      case 'F':
      case 'g':
      case 'G': {
        const double d = ToDouble(value);
        negative = std::signbit(d) && !std::isnan(d);
        body = FormatFloat(runtime_, std::abs(d), type, precision, alternate);
        break;
      }
      default:
        Fail(std::string("unsupported format character '") + type + "'");
    }
    const bool plus = flags.find('+') != flags.npos;
    const bool blank = flags.find(' ') != flags.npos;
    *sign = (negative ? "-" : plus ? "+" : blank ? " " : "") + *sign;
    return body;
  }

  Runtime& runtime_;
  const std::string& format_;
  const bool safe_;
  const Value& values_;
  size_t at_ = 0;
  size_t next_ = 0;
  std::string out_;
};

}  // namespace

std::string FormatFloat(Runtime& runtime, double d, char type, int64_t precision, bool alternate) {
  if (!std::isfinite(d)) {
    std::string text = std::isnan(d) ? "nan" : std::signbit(d) ? "-inf" : "inf";
    return type >= 'A' && type <= 'Z' ? Upper(std::move(text)) : text;
  }
  const int64_t digits = precision < 0 ? 6 : precision;
  runtime.CheckBytes(static_cast<size_t>(digits));
  runtime.Step(static_cast<uint64_t>(digits));
  const std::string format = std::string(alternate ? "%#.*" : "%.*") + type;
  const int bytes = std::snprintf(nullptr, 0, format.c_str(), static_cast<int>(digits), d);
  std::string out(static_cast<size_t>(std::max(bytes, 0)) + 1, '\0');
  std::snprintf(out.data(), out.size(), format.c_str(), static_cast<int>(digits), d);
  out.pop_back();
  return out;
}

Value PercentFormat(Runtime& runtime, const Value& format, const Value& values) {
  return PercentFormatter(runtime, format, values).Run();
}

}  // namespace strata::jinja
