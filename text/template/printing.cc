#include "text/template/printing.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <optional>
#include <string_view>
#include <utility>

#include "text/template/integer.h"
#include "text/template/operators.h"
#include "text/unicode/python_text.h"
#include "text/unicode/utf8.h"

namespace strata::jinja {
namespace {

void AppendHexEscape(char32_t c, std::string* out) {
  char buffer[16];
  const char* format = c < 0x100 ? "\\x%02x" : c < 0x10000 ? "\\u%04x" : "\\U%08x";
  std::snprintf(buffer, sizeof(buffer), format, static_cast<unsigned>(c));
  out->append(buffer);
}

void AppendStringRepr(const std::string& text, std::string* out) {
  const bool has_single = text.find('\'') != std::string::npos;
  const bool has_double = text.find('"') != std::string::npos;
  const char quote = has_single && !has_double ? '"' : '\'';
  out->push_back(quote);
  for (size_t at = 0; at < text.size();) {
    const CodePoint c = DecodeAt(text, at);
    if (c.value == static_cast<char32_t>(quote) || c.value == '\\') {
      out->push_back('\\');
      out->push_back(static_cast<char>(c.value));
    } else if (c.value == '\n') {
      out->append("\\n");
    } else if (c.value == '\r') {
      out->append("\\r");
    } else if (c.value == '\t') {
      out->append("\\t");
    } else if (c.value >= ' ' && c.value < 0x7F) {
      out->push_back(static_cast<char>(c.value));
    } else if (c.value >= 0x80 && python::IsPrintable(c.value)) {
      out->append(text, at, c.bytes);
    } else {
      AppendHexEscape(c.value, out);
    }
    at += c.bytes;
  }
  out->push_back(quote);
}

// The words on which Python and JSON differ.
struct ScalarWords {
  std::string_view none, yes, no, nan, infinity, minus_infinity;
};
constexpr ScalarWords kPythonWords = {"None", "True", "False", "nan", "inf", "-inf"};
constexpr ScalarWords kJsonWords = {"null", "true", "false", "NaN", "Infinity", "-Infinity"};

// None, booleans and numbers; nothing for other kinds.
std::optional<std::string> ScalarText(const Value& v, const ScalarWords& words) {
  switch (v.kind()) {
    case Kind::kNone:
      return std::string(words.none);
    case Kind::kBool:
      return std::string(v.boolean() ? words.yes : words.no);
    case Kind::kInt:
    case Kind::kBigInt:
      return IntegerToString(v);
    case Kind::kFloat:
      if (std::isnan(v.real())) {
        return std::string(words.nan);
      }
      if (std::isinf(v.real())) {
        return std::string(v.real() > 0 ? words.infinity : words.minus_infinity);
      }
      return FloatRepr(v.real());
    default:
      return std::nullopt;
  }
}

class ReprPrinter {
 public:
  ReprPrinter(Runtime& runtime, bool sort_keys, std::string* out)
      : runtime_(runtime), sort_keys_(sort_keys), out_(out) {}

  void Print(const Value& v) {
    // Digits of a large integer take long.
    runtime_.Step(v.Is(Kind::kBigInt) ? 8000 : 2);
    const Runtime::Deeper deeper(runtime_);
    if (const std::optional<std::string> scalar = ScalarText(v, kPythonWords)) {
      out_->append(*scalar);
    } else if (v.IsString()) {
      PrintString(v);
    } else {
      PrintObject(v);
    }
    runtime_.CheckBytes(out_->size());
  }

 private:
  void PrintString(const Value& v) {
    runtime_.StepCharacters(v.text().size());
    out_->append(v.safe() ? "Markup(" : "");
    AppendStringRepr(v.text(), out_);
    out_->append(v.safe() ? ")" : "");
  }

  void PrintObject(const Value& v) {
    switch (v.kind()) {
      case Kind::kUndefined:
        out_->append("Undefined");
        break;
      case Kind::kList:
        PrintItems("[", v.items(), "]");
        break;
      case Kind::kTuple:
        PrintItems("(", v.items(), v.items().size() == 1 ? ",)" : ")");
        break;
      case Kind::kDict:
        PrintDict(v.As<DictObject>());
        break;
      case Kind::kDictView:
        out_->append(TypeName(v));
        PrintItems("([", Items(runtime_, v).ToVector(), "])");
        break;
      case Kind::kRange: {
        const auto& range = v.As<RangeObject>();
        out_->append("range(" + std::to_string(range.start) + ", " + std::to_string(range.stop));
        out_->append(range.step == 1 ? ")" : ", " + std::to_string(range.step) + ")");
        break;
      }
      case Kind::kNamespace:
        PrintNamespace(v.As<NamespaceObject>());
        break;
      default:
        out_->append("<" + std::string(TypeName(v)) + " object>");
    }
  }

  void PrintItems(std::string_view open, const std::vector<Value>& items, std::string_view close) {
    out_->append(open);
    for (size_t i = 0; i < items.size(); ++i) {
      if (i > 0) {
        out_->append(", ");
      }
      Print(items[i]);
    }
    out_->append(close);
  }

  void PrintDict(const DictObject& dict) {
    std::vector<size_t> order(dict.entries.size());
    for (size_t i = 0; i < order.size(); ++i) {
      order[i] = i;
    }
    if (sort_keys_) {
      std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) {
        return Order(runtime_, dict.entries[a].first, dict.entries[b].first) == -1;
      });
    }
    out_->push_back('{');
    for (size_t i = 0; i < order.size(); ++i) {
      if (i > 0) {
        out_->append(", ");
      }
      Print(dict.entries[order[i]].first);
      out_->append(": ");
      Print(dict.entries[order[i]].second);
    }
    out_->push_back('}');
  }

  void PrintNamespace(const NamespaceObject& names) {
    out_->append("<Namespace {");
    for (size_t i = 0; i < names.members.size(); ++i) {
      out_->append(i > 0 ? ", " : "");
      runtime_.StepCharacters(names.members[i].first.text().size());
      AppendStringRepr(names.members[i].first.text(), out_);
      out_->append(": ");
      Print(names.members[i].second);
    }
    out_->append("}>");
  }

  Runtime& runtime_;
  const bool sort_keys_;
  std::string* const out_;
};

class JsonPrinter {
 public:
  JsonPrinter(Runtime& runtime, const JsonOptions& options, std::string* out)
      : runtime_(runtime),
        options_(options),
        item_separator_(options.item_separator.value_or(options.indent ? "," : ", ")),
        key_separator_(options.key_separator.value_or(": ")),
        out_(out) {}

  void Print(const Value& v) {
    // Digits of a large integer take long.
    runtime_.Step(v.Is(Kind::kBigInt) ? 8000 : 2);
    const Runtime::Deeper deeper(runtime_);
    if (const std::optional<std::string> scalar = ScalarText(v, kJsonWords)) {
      out_->append(*scalar);
    } else if (v.IsString()) {
      PrintText(v.text());
    } else if (v.IsSequence()) {
      PrintList(v.items());
    } else if (v.Is(Kind::kDict)) {
      PrintDict(v.As<DictObject>());
    } else {
      Fail("Object of type " + std::string(TypeName(v)) + " is not JSON serializable");
    }
    runtime_.CheckBytes(out_->size());
  }

 private:
  void AppendUnit(unsigned unit) {
    char buffer[16];
    std::snprintf(buffer, sizeof(buffer), "\\u%04x", unit);
    out_->append(buffer);
  }

  void PrintText(const std::string& text) {
    runtime_.StepCharacters(text.size());
    out_->push_back('"');
    for (size_t at = 0; at < text.size();) {
      const CodePoint c = DecodeAt(text, at);
      switch (c.value) {
        case '"':
          out_->append("\\\"");
          break;
        case '\\':
          out_->append("\\\\");
          break;
        case '\n':
          out_->append("\\n");
          break;
        case '\r':
          out_->append("\\r");
          break;
        case '\t':
          out_->append("\\t");
          break;
        case '\f':
          out_->append("\\f");
          break;
        case '\b':
          out_->append("\\b");
          break;
        default:
          if (c.value < 0x20 || (options_.ensure_ascii && c.value >= 0x7F)) {
            if (c.value >= 0x10000) {
              AppendUnit(0xD800 + ((c.value - 0x10000) >> 10));
              AppendUnit(0xDC00 + ((c.value - 0x10000) & 0x3FF));
            } else {
              AppendUnit(c.value);
            }
          } else {
            out_->append(text, at, c.bytes);
          }
      }
      at += c.bytes;
    }
    out_->push_back('"');
  }

  void NewLine() {
    if (options_.indent) {
      out_->push_back('\n');
      runtime_.CheckBytes(options_.indent->size(), static_cast<uint64_t>(level_));
      for (int i = 0; i < level_; ++i) {
        out_->append(*options_.indent);
      }
      runtime_.StepBytes(options_.indent->size() * static_cast<size_t>(level_));
      runtime_.CheckBytes(out_->size());
    }
  }

  void PrintList(const std::vector<Value>& items) {
    if (items.empty()) {
      out_->append("[]");
      return;
    }
    out_->push_back('[');
    ++level_;
    for (size_t i = 0; i < items.size(); ++i) {
      if (i > 0) {
        out_->append(item_separator_);
      }
      NewLine();
      Print(items[i]);
    }
    --level_;
    NewLine();
    out_->push_back(']');
  }

  static std::string KeyText(const Value& key) {
    if (key.IsString()) {
      return key.text();
    }
    if (std::optional<std::string> scalar = ScalarText(key, kJsonWords)) {
      return *std::move(scalar);
    }
    Fail("keys must be str, int, float, bool or None, not " + std::string(TypeName(key)));
  }

  void PrintDict(const DictObject& dict) {
    if (dict.entries.empty()) {
      out_->append("{}");
      return;
    }
    std::vector<const std::pair<Value, Value>*> entries;
    for (const auto& entry : dict.entries) {
      entries.push_back(&entry);
    }
    if (options_.sort_keys) {
      std::stable_sort(entries.begin(), entries.end(), [this](const auto* a, const auto* b) {
        return Order(runtime_, a->first, b->first) == -1;
      });
    }
    out_->push_back('{');
    ++level_;
    for (size_t i = 0; i < entries.size(); ++i) {
      if (i > 0) {
        out_->append(item_separator_);
      }
      NewLine();
      PrintText(KeyText(entries[i]->first));
      out_->append(key_separator_);
      Print(entries[i]->second);
    }
    --level_;
    NewLine();
    out_->push_back('}');
  }

  Runtime& runtime_;
  const JsonOptions& options_;
  const std::string item_separator_;
  const std::string key_separator_;
  std::string* const out_;
  int level_ = 0;
};

}  // namespace

std::string FloatRepr(double d) {
  if (std::isnan(d)) {
    return "nan";
  }
  if (std::isinf(d)) {
    return d > 0 ? "inf" : "-inf";
  }
  char buffer[40];
  const auto [end, error] =
      std::to_chars(buffer, buffer + sizeof(buffer), d, std::chars_format::scientific);
  const std::string shortest(buffer, error == std::errc() ? end : buffer);
  const size_t e = shortest.find('e');
  const int exponent = std::atoi(shortest.c_str() + e + 1);
  const bool negative = shortest[0] == '-';
  std::string digits = shortest.substr(negative ? 1 : 0, e - (negative ? 1 : 0));
  std::erase(digits, '.');
  std::string out = negative ? "-" : "";
  if (exponent < -4 || exponent >= 16) {
    out += digits.substr(0, 1);
    if (digits.size() > 1) {
      out += "." + digits.substr(1);
    }
    std::snprintf(buffer, sizeof(buffer), "e%c%02d", exponent < 0 ? '-' : '+', std::abs(exponent));
    return out + buffer;
  }
  if (exponent < 0) {
    return out + "0." + std::string(static_cast<size_t>(-exponent - 1), '0') + digits;
  }
  const auto whole = static_cast<size_t>(exponent) + 1;
  if (digits.size() <= whole) {
    return out + digits + std::string(whole - digits.size(), '0') + ".0";
  }
  return out + digits.substr(0, whole) + "." + digits.substr(whole);
}

void AppendString(Runtime& runtime, const Value& v, std::string* out) {
  if (v.IsUndefined()) {
    return;
  }
  if (v.IsString()) {
    runtime.CheckBytes(out->size() + v.text().size());
    runtime.StepBytes(v.text().size());
    out->append(v.text());
  } else {
    ReprPrinter(runtime, false, out).Print(v);
  }
}

std::string ToString(Runtime& runtime, const Value& v) {
  std::string out;
  AppendString(runtime, v, &out);
  return out;
}

Value StringOf(Runtime& runtime, const Value& v) {
  return v.IsString() ? v : runtime.String(ToString(runtime, v));
}

std::string ToRepr(Runtime& runtime, const Value& v, bool sort_keys) {
  std::string out;
  ReprPrinter(runtime, sort_keys, &out).Print(v);
  return out;
}

std::string ToJson(Runtime& runtime, const Value& v, const JsonOptions& options) {
  std::string out;
  JsonPrinter(runtime, options, &out).Print(v);
  return out;
}

}  // namespace strata::jinja
