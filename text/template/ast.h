// The tree of a parsed template. Nodes live in the Program's arenas and point to each other.
#ifndef STRATA_TEXT_TEMPLATE_AST_H_
#define STRATA_TEXT_TEMPLATE_AST_H_

#include <cstdint>
#include <deque>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "text/template/operators.h"
#include "text/template/value.h"

namespace strata::jinja {

struct Expression;
struct Statement;
using Block = std::vector<Statement*>;

using FilterFunction = Value (*)(Runtime&, const Value& input, Arguments&);
using TestFunction = bool (*)(Runtime&, const Value& input, Arguments&);

struct ArgumentNodes {
  std::vector<Expression*> positional;
  std::vector<std::pair<std::string, Expression*>> named;
  Expression* star = nullptr;         // *sequence
  Expression* double_star = nullptr;  // **mapping
};

struct Expression {
  enum class Kind : uint8_t {
    kConstant,     // value
    kName,         // name
    kMember,       // name.value as the target of a set
    kList,         // operands
    kTuple,        // operands
    kDict,         // operands: key, value, key, value ...
    kNegate,       // operands[0]
    kPositive,     // operands[0]
    kNot,          // operands[0]
    kBinary,       // operands[0] op operands[1]
    kAnd,          // operands[0] and operands[1]
    kOr,           // operands[0] or operands[1]
    kConcat,       // operands joined
    kCompare,      // operands[0] operators[0] operands[1] operators[1] ...
    kConditional,  // operands[1] if operands[0] else operands[2], which may be null
    kAttribute,    // operands[0].value
    kItem,         // operands[0][operands[1]]
    kSlice,        // operands[0][operands[1]:operands[2]:operands[3]], null where not given
    kFilter,       // operands[0] | value(arguments); operands[0] null inside a filter block
    kTest,         // operands[0] is value(arguments)
    kCall,         // operands[0](arguments)
  };
  Kind kind;
  Operator op = Operator::kAdd;
  int line = 0;
  int name = -1;   // Number of a variable in Program::names.
  int levels = 1;  // Nesting of this and below, without the left sides of operators.
  Value value;
  std::vector<Expression*> operands;
  std::vector<Operator> operators;
  ArgumentNodes* arguments = nullptr;
  FilterFunction filter = nullptr;  // Null: unknown, an error when it is used.
  TestFunction test = nullptr;
};

// The head and body of a macro or a call block.
struct MacroNode {
  std::string name;  // "caller" for a call block.
  int name_id = -1;
  std::vector<std::string> parameters;
  std::vector<int> parameter_ids;
  std::vector<Expression*> defaults;  // Of the last parameters.
  Block body;
  bool uses_caller = false;
  bool uses_varargs = false;
  bool uses_kwargs = false;
};

struct Statement {
  enum class Kind : uint8_t {
    kText,        // text
    kPrint,       // expression
    kIf,          // branches, otherwise
    kFor,         // target in expression if condition (may be null): body, else otherwise
    kSet,         // target = expression
    kSetBlock,    // target = body, through expression (a filter; may be null)
    kMacro,       // macro
    kCall,        // expression (a call) with `macro` as its caller
    kFilter,      // expression applied to body
    kWith,        // targets = values: body
    kScope,       // body in a scope of its own (generation)
    kBlock,       // body over the root scope
    kAutoescape,  // body, with autoescape as expression says
    kBreak,
    kContinue,
    kUnsupported,  // text says what
  };
  Kind kind;
  int line = 0;
  bool recursive = false;
  std::string text;
  Expression* target = nullptr;
  Expression* expression = nullptr;
  Expression* condition = nullptr;
  std::vector<std::pair<Expression*, Block>> branches;
  std::vector<std::pair<Expression*, Expression*>> bindings;
  Block body;
  Block otherwise;
  MacroNode* macro = nullptr;
};

struct Program {
  std::deque<Expression> expressions;
  std::deque<Statement> statements;
  std::deque<MacroNode> macros;
  std::deque<ArgumentNodes> arguments;
  std::vector<std::string> names;  // Of variables, by number.
  std::unordered_map<std::string, int> name_ids;
  Block body;
};

}  // namespace strata::jinja

#endif  // STRATA_TEXT_TEMPLATE_AST_H_
