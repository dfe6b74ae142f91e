#include "text/template/parser.h"

#include <algorithm>
#include <unordered_set>

#include "text/template/expression_parser.h"
#include "text/template/failure.h"
#include "text/template/lexer.h"

namespace strata::jinja {
namespace {

class Parser : public ExpressionParser {
 public:
  Parser(std::string_view source, const TemplateLimits& limits, Program* program)
      : ExpressionParser(Tokenize(source, limits.max_tokens), limits, program) {}

  void Run() {
    program_->body = ParseBlock({}, "").first;
    if (!unknown_.empty()) {
      FailSyntax(unknown_[0].first, unknown_[0].second);
    }
  }

 private:
  // Statements up to a tag that is one of `ends`, whose name is taken and returned; without ends,
  // up to the end of the template. `tag` is the tag that they belong to.
  std::pair<Block, std::string> ParseBlock(const EndNames& ends, std::string_view tag) {
    const Deeper deeper(this);
    Block block;
    while (true) {
      switch (Current().type) {
        case Token::Type::kText: {
          Statement* text = NewStatement(Statement::Kind::kText);
          text->text = Take().text;
          block.push_back(text);
          break;
        }
        case Token::Type::kVariableBegin: {
          Take();
          Statement* print = NewStatement(Statement::Kind::kPrint);
          print->expression = ParseTuple(true);
          Expect(Token::Type::kVariableEnd);
          block.push_back(print);
          break;
        }
        case Token::Type::kBlockBegin: {
          Take();
          if (Current().type != Token::Type::kName) {
            FailSyntax("tag name expected", Current().line);
          }
          if (std::find(ends.begin(), ends.end(), Current().text) != ends.end()) {
            return {std::move(block), Take().text};
          }
          block.push_back(ParseStatement(ends, tag));
          Expect(Token::Type::kBlockEnd);
          break;
        }
        default:
          if (!ends.empty()) {
            FailSyntax("Unexpected end of template: " + Wanted(ends, tag), Current().line);
          }
          return {std::move(block), ""};
      }
    }
  }

  static std::string Wanted(const EndNames& ends, std::string_view tag) {
    std::string wanted = "'" + std::string(tag) + "' needs ";
    for (size_t i = 0; i < ends.size(); ++i) {
      wanted += (i > 0 ? " or '" : "'") + std::string(ends[i]) + "'";
    }
    return wanted;
  }

  Statement* NewStatement(Statement::Kind kind) {
    Statement& statement = program_->statements.emplace_back();
    statement.kind = kind;
    statement.line = Current().line;
    return &statement;
  }

  // The rest of a tag that opens a block, and the block up to `end`, past its name.
  Block ParseBody(std::string_view tag, std::string_view end) {
    Expect(Token::Type::kBlockEnd);
    const Softness hard(this, false);
    return ParseBlock({end}, tag).first;
  }

  // Sets soft_ while it lives.
  class Softness {
   public:
    Softness(Parser* parser, bool soft)
        : parser_(parser), outer_(std::exchange(parser->soft_, soft)) {}
    ~Softness() { parser_->soft_ = outer_; }
    Softness(const Softness&) = delete;
    Softness& operator=(const Softness&) = delete;

   private:
    Parser* const parser_;
    const bool outer_;
  };

  // A tag, its name in front; leaves its last "%}".
  Statement* ParseStatement(const EndNames& ends, std::string_view tag) {
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
      if (IsName(name)) {
        return (this->*parse)();
      }
    }
    FailSyntax(
        "unknown tag '" + Current().text + "'" + (ends.empty() ? "" : ": " + Wanted(ends, tag)),
        Current().line);
  }

  Statement* ParseIf() {
    Statement* node = NewStatement(Statement::Kind::kIf);
    Take();
    const Softness soft(this, true);
    std::string end = "elif";
    while (end == "elif") {
      Expression* condition = ParseTuple(false);
      Expect(Token::Type::kBlockEnd);
      auto [body, next] = ParseBlock({"elif", "else", "endif"}, "if");
      node->branches.emplace_back(condition, std::move(body));
      end = next;
    }
    if (end == "else") {
      Expect(Token::Type::kBlockEnd);
      node->otherwise = ParseBlock({"endif"}, "if").first;
    }
    return node;
  }

  Statement* ParseFor() {
    Statement* node = NewStatement(Statement::Kind::kFor);
    Take();
    node->target = ParseTarget({"in"}, /*with_members=*/false);
    ExpectName("in");
    node->expression = ParseTuple(false, {"recursive"});
    const Softness hard(this, false);
    if (SkipName("if")) {
      node->condition = ParseExpression();
    }
    node->recursive = SkipName("recursive");
    Expect(Token::Type::kBlockEnd);
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
    Statement* node = NewStatement(Statement::Kind::kSet);
    Take();
    node->target = ParseTarget({}, /*with_members=*/true);
    if (SkipOperator("=")) {
      node->expression = ParseTuple(true);
      return node;
    }
    node->kind = Statement::Kind::kSetBlock;
    if (SkipOperator("|")) {
      node->expression = ParseFilterChain();
    }
    node->body = ParseBody("set", "endset");
    return node;
  }

  // (a, b=1) of a macro or call block.
  void ParseSignature(MacroNode* macro) {
    ExpectOperator("(");
    while (!IsOperator(")")) {
      if (!macro->parameters.empty()) {
        ExpectOperator(",");
      }
      const std::string name = ParsePlainName();
      macro->parameters.push_back(name);
      macro->parameter_ids.push_back(NameId(name));
      if (SkipOperator("=")) {
        macro->defaults.push_back(ParseExpression());
      } else if (!macro->defaults.empty()) {
        FailSyntax("non-default argument follows default argument", Current().line);
      }
    }
    ExpectOperator(")");
  }

  std::string ParsePlainName() {
    const int line = Current().line;
    const std::string name = ExpectAnyName();
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
    open_macros_.push_back(macro);
    macro->body = ParseBody(tag, end);
    open_macros_.pop_back();
    loops_ = loops;
  }

  Statement* ParseMacro() {
    Statement* node = NewStatement(Statement::Kind::kMacro);
    Take();
    node->macro = &program_->macros.emplace_back();
    node->macro->name = ParsePlainName();
    node->macro->name_id = NameId(node->macro->name);
    open_macros_.push_back(node->macro);  // Defaults may name what the caller passed.
    ParseSignature(node->macro);
    open_macros_.pop_back();
    ParseMacroBody(node->macro, "macro", "endmacro");
    return node;
  }

  Statement* ParseCallBlock() {
    Statement* node = NewStatement(Statement::Kind::kCall);
    Take();
    node->macro = &program_->macros.emplace_back();
    node->macro->name = "caller";
    if (IsOperator("(")) {
      ParseSignature(node->macro);
    }
    node->expression = ParseExpression();
    if (node->expression->kind != Expression::Kind::kCall) {
      FailSyntax("expected call", node->line);
    }
    ParseMacroBody(node->macro, "call", "endcall");
    return node;
  }

  Statement* ParseFilterBlock() {
    Statement* node = NewStatement(Statement::Kind::kFilter);
    Take();
    node->expression = ParseFilterChain();
    node->body = ParseBody("filter", "endfilter");
    return node;
  }

  Statement* ParseWith() {
    Statement* node = NewStatement(Statement::Kind::kWith);
    Take();
    while (Current().type != Token::Type::kBlockEnd) {
      if (!node->bindings.empty()) {
        ExpectOperator(",");
      }
      Expression* target = ParseTarget({}, /*with_members=*/false);
      ExpectOperator("=");
      node->bindings.emplace_back(target, ParseExpression());
    }
    node->body = ParseBody("with", "endwith");
    return node;
  }

  Statement* ParseGeneration() {
    Statement* node = NewStatement(Statement::Kind::kScope);
    Take();
    const int loops = std::exchange(loops_, 0);
    node->body = ParseBody("generation", "endgeneration");
    loops_ = loops;
    return node;
  }

  Statement* ParseNamedBlock() {
    Statement* node = NewStatement(Statement::Kind::kBlock);
    Take();
    node->text = ExpectAnyName();
    if (!block_names_.insert(node->text).second) {
      FailSyntax("block '" + node->text + "' defined twice", node->line);
    }
    while (IsName("scoped") || IsName("required")) {
      Take();
    }
    const int loops = std::exchange(loops_, 0);
    node->body = ParseBody("block", "endblock");
    loops_ = loops;
    SkipName(node->text);
    return node;
  }

  Statement* ParseAutoescape() {
    Statement* node = NewStatement(Statement::Kind::kAutoescape);
    Take();
    node->expression = ParseExpression();
    node->body = ParseBody("autoescape", "endautoescape");
    return node;
  }

  Statement* ParsePrint() {
    Statement* node = NewStatement(Statement::Kind::kPrint);
    Take();
    node->expression = ParseTuple(true);
    return node;
  }

  Statement* ParseBreak() { return ParseLoopControl(Statement::Kind::kBreak); }
  Statement* ParseContinue() { return ParseLoopControl(Statement::Kind::kContinue); }

  Statement* ParseLoopControl(Statement::Kind kind) {
    Statement* node = NewStatement(kind);
    const std::string name = Take().text;
    if (loops_ == 0) {
      FailSyntax("'" + name + "' outside loop", node->line);
    }
    return node;
  }

  // Other templates: there are none. An error only where it is reached.
  Statement* ParseUnsupported() {
    Statement* node = NewStatement(Statement::Kind::kUnsupported);
    node->text = "there are no other templates to " + Take().text;
    while (Current().type != Token::Type::kBlockEnd && Current().type != Token::Type::kEnd) {
      Take();
    }
    return node;
  }

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
