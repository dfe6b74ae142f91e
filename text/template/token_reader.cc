#include "text/template/token_reader.h"

#include <algorithm>

#include "text/template/failure.h"

namespace strata::jinja {

std::string Describe(const Token& token) {
  switch (token.type) {
    case Token::Type::kVariableEnd:
      return "end of print statement";
    case Token::Type::kBlockEnd:
      return "end of statement block";
    case Token::Type::kEnd:
      return "end of template";
    case Token::Type::kString:
      return "string";
    default:
      return token.text;
  }
}

Token TokenReader::Take() {
  Token token = tokens_[at_];
  if (at_ + 1 < tokens_.size()) {
    ++at_;
  }
  return token;
}

bool TokenReader::IsOperator(std::string_view op) const {
  return Current().type == Token::Type::kOperator && Current().text == op;
}

bool TokenReader::IsName(std::string_view name) const {
  return Current().type == Token::Type::kName && Current().text == name;
}

bool TokenReader::IsTupleEnd(const Names& end_names) const {
  return Current().type == Token::Type::kVariableEnd || Current().type == Token::Type::kBlockEnd ||
         IsOperator(")") ||
         std::any_of(end_names.begin(), end_names.end(),
                     [this](std::string_view name) { return IsName(name); });
}

bool TokenReader::SkipOperator(std::string_view op) {
  const bool found = IsOperator(op);
  if (found) {
    Take();
  }
  return found;
}

bool TokenReader::SkipName(std::string_view name) {
  const bool found = IsName(name);
  if (found) {
    Take();
  }
  return found;
}

void TokenReader::FailUnexpected(std::string_view wanted) const {
  FailSyntax("expected " + std::string(wanted) + ", got '" + Describe(Current()) + "'", line());
}

void TokenReader::ExpectOperator(std::string_view op) {
  if (!SkipOperator(op)) {
    FailUnexpected("'" + std::string(op) + "'");
  }
}

void TokenReader::ExpectName(std::string_view name) {
  if (!SkipName(name)) {
    FailUnexpected("'" + std::string(name) + "'");
  }
}

std::string TokenReader::ExpectAnyName() {
  if (Current().type != Token::Type::kName) {
    FailUnexpected("a name");
  }
  return Take().text;
}

void TokenReader::Expect(Token::Type type) {
  if (Current().type != type) {
    FailUnexpected(type == Token::Type::kVariableEnd ? "'}}'" : "'%}'");
  }
  Take();
}

}  // namespace strata::jinja
