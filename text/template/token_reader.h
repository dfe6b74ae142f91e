// The tokens of a template, read one by one.
#ifndef STRATA_TEXT_TEMPLATE_TOKEN_READER_H_
#define STRATA_TEXT_TEMPLATE_TOKEN_READER_H_

#include <string>
#include <string_view>
#include <vector>

#include "text/template/lexer.h"

namespace strata::jinja {

// Where the parser is in the source. What is expected and not there is a syntax error.
class TokenReader {
 public:
  using Names = std::vector<std::string_view>;

  // `tokens` ends with Token::Type::kEnd, which is never passed.
  explicit TokenReader(std::vector<Token> tokens) : tokens_(std::move(tokens)) {}

  const Token& Current() const { return tokens_[at_]; }
  const Token& Next() const { return tokens_[at_ + 1 < tokens_.size() ? at_ + 1 : at_]; }
  int line() const { return Current().line; }
  Token Take();
  bool IsOperator(std::string_view op) const;
  bool IsName(std::string_view name) const;
  // Whether no further item of a tuple follows: a tag or a parenthesis ends, or one of `end_names`
  // is next.
  bool IsTupleEnd(const Names& end_names) const;
  // These take the token if it is the one named, and say whether it was.
  bool SkipOperator(std::string_view op);
  bool SkipName(std::string_view name);
  // These fail if it is another one.
  void ExpectOperator(std::string_view op);
  void ExpectName(std::string_view name);
  std::string ExpectAnyName();
  // Takes a token that must be of this type, the end of a variable or of a block.
  void Expect(Token::Type type);
  [[noreturn]] void FailUnexpected(std::string_view wanted) const;

 private:
  const std::vector<Token> tokens_;
  size_t at_ = 0;
};

// What error messages call a token.
std::string Describe(const Token& token);

}  // namespace strata::jinja

#endif  // STRATA_TEXT_TEMPLATE_TOKEN_READER_H_
