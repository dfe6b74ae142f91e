// Splits a template into text, and the tokens of its tags. White space control (trim_blocks,
// lstrip_blocks, - and + in the delimiters) is done here.
#ifndef STRATA_TEXT_TEMPLATE_LEXER_H_
#define STRATA_TEXT_TEMPLATE_LEXER_H_

#include <string>
#include <string_view>
#include <vector>

#include "text/template/value.h"

namespace strata::jinja {

struct Token {
  enum class Type {
    kText,
    kVariableBegin,
    kVariableEnd,
    kBlockBegin,
    kBlockEnd,
    kName,
    kString,
    kInteger,
    kFloat,
    kOperator,
    kEnd,
  };
  Type type;
  std::string text;  // Of names, strings (unescaped), operators and text.
  Value number;      // kInteger and kFloat.
  int line;          // 1-based.
};

// Throws Failure; one where there are more than `max_tokens`, text between tags being one.
std::vector<Token> Tokenize(std::string_view source, size_t max_tokens);

}  // namespace strata::jinja

#endif  // STRATA_TEXT_TEMPLATE_LEXER_H_
