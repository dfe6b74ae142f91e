#include <cstdio>
#include <string>

#include "text/grammar/grammar.h"
#include "text/unicode/utf8.h"

namespace strata {
namespace {

using Kind = GrammarExpr::Kind;

// What XGrammar calls a lookahead assertion.
constexpr char kBehindValues[] = " (= [\\u0009\\u000A\\u000D ]* [,:\\]}])";

// `special`: which characters of ASCII need a backslash.
void AppendCharacter(char32_t c, std::string_view special, std::string* out) {
  char escape[16];
  if (c >= 0x20 && c < 0x7F) {
    if (special.find(static_cast<char>(c)) != std::string_view::npos) {
      *out += '\\';
    }
    *out += static_cast<char>(c);
  } else if (c < 0x10000) {
    std::snprintf(escape, sizeof(escape), "\\u%04X", static_cast<unsigned>(c));
    *out += escape;
  } else {
    std::snprintf(escape, sizeof(escape), "\\U%08X", static_cast<unsigned>(c));
    *out += escape;
  }
}

class EbnfWriter {
 public:
  explicit EbnfWriter(const Grammar& grammar) : grammar_(grammar) {}

  std::string Write() {
    for (size_t rule = 0; rule < grammar_.size(); ++rule) {
      out_ += Name(rule) + " ::= ";
      Append(grammar_.body(rule), grammar_.EndsValue(rule));
      out_ += grammar_.EndsValue(rule) ? kBehindValues : "";
      out_ += '\n';
    }
    return std::move(out_);
  }

 private:
  std::string Name(size_t rule) const {
    return rule == grammar_.root() ? "root" : grammar_.name(rule) + "_" + std::to_string(rule);
  }

  void Append(const GrammarExpr& expr, bool inner) {
    switch (expr.kind) {
      case Kind::kLiteral:
        AppendLiteral(expr.text);
        return;
      case Kind::kClass:
        AppendClass(expr.set);
        return;
      case Kind::kRule:
        out_ += Name(expr.rule);
        return;
      case Kind::kToken:
        out_ += "Token(" + std::to_string(expr.token) + ")";
        return;
      case Kind::kRepeat:
        Append(expr.children[0], true);
        AppendCount(expr);
        return;
      case Kind::kSequence:
      case Kind::kChoice:
        break;
    }
    out_ += inner ? "(" : "";
    bool first = true;
    for (const GrammarExpr& child : expr.children) {
      out_ += first ? "" : expr.kind == Kind::kChoice ? " | " : " ";
      first = false;
      Append(child, child.kind != Kind::kSequence || expr.kind == Kind::kSequence);
    }
    out_ += inner ? ")" : "";
  }

  void AppendCount(const GrammarExpr& expr) {
    if (expr.max == GrammarExpr::kNoLimit && expr.min <= 1) {
      out_ += expr.min == 0 ? "*" : "+";
    } else if (expr.max == GrammarExpr::kNoLimit) {
      out_ += "{" + std::to_string(expr.min) + ",}";
    } else if (expr.min == 0 && expr.max == 1) {
      out_ += "?";
    } else {
      out_ += "{" + std::to_string(expr.min) + "," + std::to_string(expr.max) + "}";
    }
  }

  void AppendLiteral(std::string_view text) {
    out_ += '"';
    for (size_t at = 0; at < text.size();) {
      AppendCharacter(NextChar(text, &at), "\"\\", &out_);
    }
    out_ += '"';
  }

  void AppendClass(const CharSet& set) {
    out_ += '[';
    for (const CharSet::Range& range : set.ranges()) {
      AppendCharacter(range.low, "\\]^-[", &out_);
      if (range.high > range.low) {
        out_ += range.high == range.low + 1 ? "" : "-";
        AppendCharacter(range.high, "\\]^-[", &out_);
      }
    }
    out_ += ']';
  }

  const Grammar& grammar_;
  std::string out_;
};

}  // namespace

std::string EbnfOf(const Grammar& grammar) { return EbnfWriter(grammar).Write(); }

}  // namespace strata
