#include "text/template/parser.h"

#include <algorithm>
#include <unordered_set>

#include "text/template/expression_parser.h"
#include "text/template/failure.h"
#include "text/template/lexer.h"
#include "text/template/nesting.h"
#include "text/template/program_builder.h"
#include "text/template/token_reader.h"
#include "text/template/unknown_names.h"

namespace strata::jinja {
namespace {

class Parser {
 public:
  Parser(std::string_view source, const TemplateLimits& limits, Program* program)
      : tokens_(Tokenize(source, limits.max_tokens)),
        nodes_(tokens_, limits, program),
        nesting_(limits.max_depth, tokens_),
        expressions_(tokens_, nodes_, nesting_, unknown_) {}

  void Run() {
    nodes_.SetBody(ParseBlock({}, "").first);
    unknown_.Check();
  }

 private:
  // Statements up to a tag that is one of `ends`, whose name is taken and returned; without ends,
  // up to the end of the template. `tag` is the tag that they belong to.
  std::pair<Block, std::string> ParseBlock(const TokenReader::Names& ends, std::string_view tag) {
    const Nesting::Level level(nesting_);
    Block block;
    while (true) {
      switch (tokens_.Current().type) {
        case Token::Type::kText: {
          Statement* text = nodes_.NewStatement(Statement::Kind::kText);
          text->text = tokens_.Take().text;
          block.push_back(text);
          break;
        }
        case Token::Type::kVariableBegin: {
          tokens_.Take();
          Statement* print = nodes_.NewStatement(Statement::Kind::kPrint);
          print->expression = expressions_.ParseTuple(true);
          tokens_.Expect(Token::Type::kVariableEnd);
          block.push_back(print);
          break;
        }
        case Token::Type::kBlockBegin: {
          tokens_.Take();
          if (tokens_.Current().type != Token::Type::kName) {
            FailSyntax("tag name expected", tokens_.line());
          }
          if (std::find(ends.begin(), ends.end(), tokens_.Current().text) != ends.end()) {
            return {std::move(block), tokens_.Take().text};
          }
          block.push_back(ParseStatement(ends, tag));
          tokens_.Expect(Token::Type::kBlockEnd);
          break;
        }
        default:
          if (!ends.empty()) {
            FailSyntax("Unexpected end of template: " + Wanted(ends, tag), tokens_.line());
          }
          return {std::move(block), ""};
      }
    }
  }

  static std::string Wanted(const TokenReader::Names& ends, std::string_view tag) {
    std::string wanted = "'" + std::string(tag) + "' needs ";
    for (size_t i = 0; i < ends.size(); ++i) {
      wanted += (i > 0 ? " or '" : "'") + std::string(ends[i]) + "'";
    }
    return wanted;
  }

  // The rest of a tag that opens a block, and the block up to `end`, past its name.
  Block ParseBody(std::string_view tag, std::string_view end) {
    tokens_.Expect(Token::Type::kBlockEnd);
    const UnknownNames::Tolerance strict(unknown_, false);
    return ParseBlock({end}, tag).first;
  }

  // A tag, its name in front; leaves its last "%}".
  Statement* ParseStatement(const TokenReader::Names& ends, std::string_view tag) {
    using Parse = Statement* (Parser::*)();
    static constexpr std::pair<std::string_view, Parse> kTags[] = {
        {"if", &Parser::ParseIf},
        {"for", &Parser::ParseFor},
        {"set", &Parser::ParseSet},
        {"macro", &Parser::ParseMacro},
        {"call", &Parser::ParseCallBlock},
        {"filter", &Parser::ParseFilterBlock},
        {"with", &Parser::ParseWith},
        {"generation", &Parser::ParseGeneration},
        {"block", &Parser::ParseNamedBlock},
        {"autoescape", &Parser::ParseAutoescape},
        {"print", &Parser::ParsePrint},
        {"break", &Parser::ParseBreak},
        {"continue", &Parser::ParseContinue},
        {"include", &Parser::ParseUnsupported},
        {"import", &Parser::ParseUnsupported},
        {"from", &Parser::ParseUnsupported},
        {"extends", &Parser::ParseUnsupported}};
    for (const auto& [name, parse] : kTags) {
      if (tokens_.IsName(name)) {
        return (this->*parse)();
      }
    }
    FailSyntax("unknown tag '" + tokens_.Current().text + "'" +
                   (ends.empty() ? "" : ": " + Wanted(ends, tag)),
               tokens_.line());
  }

  Statement* ParseIf() {
    Statement* node = nodes_.NewStatement(Statement::Kind::kIf);
    tokens_.Take();
    const UnknownNames::Tolerance tolerant(unknown_, true);
    std::string end = "elif";
    while (end == "elif") {
      Expression* condition = expressions_.ParseTuple(false);
      tokens_.Expect(Token::Type::kBlockEnd);
      auto [body, next] = ParseBlock({"elif", "else", "endif"}, "if");
      node->branches.emplace_back(condition, std::move(body));
      end = next;
    }
    if (end == "else") {
      tokens_.Expect(Token::Type::kBlockEnd);
      node->otherwise = ParseBlock({"endif"}, "if").first;
    }
    return node;
  }

  Statement* ParseFor() {
    Statement* node = nodes_.NewStatement(Statement::Kind::kFor);
    tokens_.Take();
    node->target = expressions_.ParseTarget({"in"}, /*with_members=*/false);
    tokens_.ExpectName("in");
    node->expression = expressions_.ParseTuple(false, {"recursive"});
    const UnknownNames::Tolerance strict(unknown_, false);
    if (tokens_.SkipName("if")) {
      node->condition = expressions_.ParseExpression();
    }
    node->recursive = tokens_.SkipName("recursive");
    tokens_.Expect(Token::Type::kBlockEnd);
    ++loops_;
    auto [body, end] = ParseBlock({"endfor", "else"}, "for");
    --loops_;
    node->body = std::move(body);
    if (end == "else") {
      node->otherwise = ParseBody("for", "endfor");
    }
    return node;
  }

  Statement* ParseSet() {
    Statement* node = nodes_.NewStatement(Statement::Kind::kSet);
    tokens_.Take();
    node->target = expressions_.ParseTarget({}, /*with_members=*/true);
    if (tokens_.SkipOperator("=")) {
      node->expression = expressions_.ParseTuple(true);
      return node;
    }
    node->kind = Statement::Kind::kSetBlock;
    if (tokens_.SkipOperator("|")) {
      node->expression = expressions_.ParseFilterChain();
    }
    node->body = ParseBody("set", "endset");
    return node;
  }

  // (a, b=1) of a macro or call block.
  void ParseSignature(MacroNode* macro) {
    tokens_.ExpectOperator("(");
    while (!tokens_.IsOperator(")")) {
      if (!macro->parameters.empty()) {
        tokens_.ExpectOperator(",");
      }
      const std::string name = ParsePlainName();
      macro->parameters.push_back(name);
      macro->parameter_ids.push_back(nodes_.NameId(name));
      if (tokens_.SkipOperator("=")) {
        macro->defaults.push_back(expressions_.ParseExpression());
      } else if (!macro->defaults.empty()) {
        FailSyntax("non-default argument follows default argument", tokens_.line());
      }
    }
    tokens_.ExpectOperator(")");
  }

  std::string ParsePlainName() {
    const int line = tokens_.line();
    const std::string name = tokens_.ExpectAnyName();
    for (const char* constant : {"true", "True", "false", "False", "none", "None"}) {
      if (name == constant) {
        FailSyntax("can't assign to '" + name + "'", line);
      }
    }
    return name;
  }

  // The body of something that is called: break and continue do not leave it.
  void ParseMacroBody(MacroNode* macro, std::string_view tag, std::string_view end) {
    const int loops = std::exchange(loops_, 0);
    nodes_.OpenMacro(macro);
    macro->body = ParseBody(tag, end);
    nodes_.CloseMacro();
    loops_ = loops;
  }

  Statement* ParseMacro() {
    Statement* node = nodes_.NewStatement(Statement::Kind::kMacro);
    tokens_.Take();
    node->macro = nodes_.NewMacro();
    node->macro->name = ParsePlainName();
    node->macro->name_id = nodes_.NameId(node->macro->name);
    nodes_.OpenMacro(node->macro);  // Defaults may name what the caller passed.
    ParseSignature(node->macro);
    nodes_.CloseMacro();
    ParseMacroBody(node->macro, "macro", "endmacro");
    return node;
  }

  Statement* ParseCallBlock() {
    Statement* node = nodes_.NewStatement(Statement::Kind::kCall);
    tokens_.Take();
    node->macro = nodes_.NewMacro();
    node->macro->name = "caller";
    if (tokens_.IsOperator("(")) {
      ParseSignature(node->macro);
    }
    node->expression = expressions_.ParseExpression();
    if (node->expression->kind != Expression::Kind::kCall) {
      FailSyntax("expected call", node->line);
    }
    ParseMacroBody(node->macro, "call", "endcall");
    return node;
  }

  Statement* ParseFilterBlock() {
    Statement* node = nodes_.NewStatement(Statement::Kind::kFilter);
    tokens_.Take();
    node->expression = expressions_.ParseFilterChain();
    node->body = ParseBody("filter", "endfilter");
    return node;
  }

  Statement* ParseWith() {
    Statement* node = nodes_.NewStatement(Statement::Kind::kWith);
    tokens_.Take();
    while (tokens_.Current().type != Token::Type::kBlockEnd) {
      if (!node->bindings.empty()) {
        tokens_.ExpectOperator(",");
      }
      Expression* target = expressions_.ParseTarget({}, /*with_members=*/false);
      tokens_.ExpectOperator("=");
      node->bindings.emplace_back(target, expressions_.ParseExpression());
    }
    node->body = ParseBody("with", "endwith");
    return node;
  }

  Statement* ParseGeneration() {
    Statement* node = nodes_.NewStatement(Statement::Kind::kScope);
    tokens_.Take();
    const int loops = std::exchange(loops_, 0);
    node->body = ParseBody("generation", "endgeneration");
    loops_ = loops;
    return node;
  }

  Statement* ParseNamedBlock() {
    Statement* node = nodes_.NewStatement(Statement::Kind::kBlock);
    tokens_.Take();
    node->text = tokens_.ExpectAnyName();
    if (!block_names_.insert(node->text).second) {
      FailSyntax("block '" + node->text + "' defined twice", node->line);
    }
    while (tokens_.IsName("scoped") || tokens_.IsName("required")) {
      tokens_.Take();
    }
    const int loops = std::exchange(loops_, 0);
    node->body = ParseBody("block", "endblock");
    loops_ = loops;
    tokens_.SkipName(node->text);
    return node;
  }

  Statement* ParseAutoescape() {
    Statement* node = nodes_.NewStatement(Statement::Kind::kAutoescape);
    tokens_.Take();
    node->expression = expressions_.ParseExpression();
    node->body = ParseBody("autoescape", "endautoescape");
    return node;
  }

  Statement* ParsePrint() {
    Statement* node = nodes_.NewStatement(Statement::Kind::kPrint);
    tokens_.Take();
    node->expression = expressions_.ParseTuple(true);
    return node;
  }

  Statement* ParseBreak() { return ParseLoopControl(Statement::Kind::kBreak); }
  Statement* ParseContinue() { return ParseLoopControl(Statement::Kind::kContinue); }

  Statement* ParseLoopControl(Statement::Kind kind) {
    Statement* node = nodes_.NewStatement(kind);
    const std::string name = tokens_.Take().text;
    if (loops_ == 0) {
      FailSyntax("'" + name + "' outside loop", node->line);
    }
    return node;
  }

  // Other templates: there are none. An error only where it is reached.
  Statement* ParseUnsupported() {
    Statement* node = nodes_.NewStatement(Statement::Kind::kUnsupported);
    node->text = "there are no other templates to " + tokens_.Take().text;
    while (tokens_.Current().type != Token::Type::kBlockEnd &&
           tokens_.Current().type != Token::Type::kEnd) {
      tokens_.Take();
    }
    return node;
  }

  TokenReader tokens_;
  ProgramBuilder nodes_;
  Nesting nesting_;
  UnknownNames unknown_;
  ExpressionParser expressions_;
  int loops_ = 0;  // That a break here would be inside of.
  std::unordered_set<std::string> block_names_;
};

}  // namespace

std::unique_ptr<Program> Parse(std::string_view source, const TemplateLimits& limits) {
  auto program = std::make_unique<Program>();
  Parser(source, limits, program.get()).Run();
  return program;
}

}  // namespace strata::jinja
