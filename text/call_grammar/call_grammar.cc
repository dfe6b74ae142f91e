#include "text/call_grammar/call_grammar.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/status.h"
#include "text/call_grammar/call_writings.h"
#include "text/call_grammar/keyword_arguments_grammar.h"
#include "text/call_grammar/markup_grammar.h"
#include "text/call_grammar/tagged_arguments_grammar.h"
#include "text/grammar/schema_document.h"
#include "text/grammar/schema_errors.h"
#include "text/grammar/schema_grammar.h"
#include "text/grammar/schema_reader.h"
#include "text/tools/json_scanner.h"
#include "text/unicode/utf8.h"

namespace strata {
namespace {

using Body = ToolFormat::Body;

constexpr std::string_view kEmptySchema = R"({"type": "object", "additionalProperties": false})";
// Lines that may end between the thoughts and the calls.
constexpr size_t kMaxLinesBefore = 2;

class CallGrammarWriter {
 public:
  CallGrammarWriter(const OfferedTools& offered, const CallGrammarOptions& options)
      : offered_(offered),
        options_(options),
        format_(*options.format),
        special_([this](std::string_view text) -> std::optional<uint32_t> {
          return options_.special_token == nullptr ? std::nullopt : options_.special_token(text);
        }),
        writing_(*CallWritingOf(
            format_.name, [this](std::string_view text) { return special_(text).has_value(); })),
        budget_(options.limits) {}

  absl::StatusOr<Grammar> Write() {
    std::vector<GrammarExpr> calls;
    for (const OfferedTool& tool : offered_.tools()) {
      if (!options_.only.empty() && tool.name != options_.only) {
        continue;
      }
      auto call = Call(tool);
      if (!call.ok()) {
        return Annotate(call.status(), absl::StrCat("tool ", QuotedText(tool.name)));
      }
      calls.push_back(*std::move(call));
    }
    const bool text_alone = offered_.tools().empty() && format_.body == Body::kHarmony &&
                            options_.text != nullptr && options_.may_be_text;
    if (calls.empty() && !text_alone) {
      return Error(absl::StatusCode::kInvalidArgument, "BAD_FIELD",
                   options_.only.empty()
                       ? std::string("tools must be given where one has to be called")
                       : absl::StrCat("tool_choice must name one of the tools, and ",
                                      QuotedText(options_.only), " is none"))
          .Fact("field", options_.only.empty() ? "tools" : "tool_choice");
    }
    ASSIGN_OR_RETURN(GrammarExpr answer, Answer(GrammarExpr::Choice(std::move(calls))));
    const size_t root = grammar_.AddRule("root");
    grammar_.SetBody(root, std::move(answer));
    grammar_.set_root(root);
    if (writing_.tagged() || writing_.keywords()) grammar_.ForgetEndsOfValues();
    RETURN_IF_ERROR(grammar_.CheckSize(options_.limits));
    Grammar pruned = grammar_.Pruned();
    if (pruned.IsEmpty()) {
      return SchemaAdmitsNothing();
    }
    return pruned;
  }

 private:
  GrammarExpr Mark(std::string_view text) { return Markup(text, format_, special_); }

  absl::StatusOr<GrammarExpr> Call(const OfferedTool& tool) {
    ASSIGN_OR_RETURN(GrammarExpr name, Name(tool.name));
    ASSIGN_OR_RETURN(GrammarExpr arguments, Arguments(tool));
    if (arguments.IsNothing()) {
      return SchemaAdmitsNothing();
    }
    const size_t rule = grammar_.AddRule("call");
    grammar_.SetBody(
        rule, GrammarExpr::Sequence({Mark(writing_.begin), std::move(name), Mark(writing_.middle),
                                     std::move(arguments), Mark(writing_.end)}));
    return GrammarExpr::Rule(rule);
  }

  absl::StatusOr<GrammarExpr> Name(const std::string& name) {
    if (FirstInvalidUtf8(name)) {
      return ToolNotHeld(name, format_.name, "its name is no UTF-8");
    }
    if (writing_.quoted_name) {
      return GrammarExpr::Literal("\"" + JsonEscaped(name) + "\"");
    }
    const bool plain = std::ranges::all_of(name, [](unsigned char c) {
      return c > 0x20 && c != 0x7F &&
             std::string_view("<>\"[]{}:").find(static_cast<char>(c)) == std::string_view::npos;
    });
    if (!plain || name.find("｜") != std::string::npos ||
        (writing_.keywords() && !IsPythonName(name))) {
      return ToolNotHeld(name, format_.name, "its name is no plain word");
    }
    return GrammarExpr::Literal(name);
  }

  absl::StatusOr<GrammarExpr> Arguments(const OfferedTool& tool) {
    const std::string_view schema = tool.parameters.empty() ? kEmptySchema : tool.parameters;
    ASSIGN_OR_RETURN(JsonValue root, ParseJsonValue(schema, options_.limits));
    ASSIGN_OR_RETURN(const SchemaDocument document, SchemaDocument::Make(std::move(root)));
    const Goal goal({Condition::Kind::kHolds, &document.root()});
    SchemaReader reader(&document, tool.strict, &budget_);
    if (writing_.keywords()) {
      SchemaGrammar writer(&reader, &grammar_, &budget_);
      const KeywordMarkup markup{format_, writing_.equals, writing_.comma, Mark(format_.quote)};
      ASSIGN_OR_RETURN(GrammarExpr arguments, KeywordArgumentsOf(tool, goal, markup, &writer));
      RETURN_IF_ERROR(writer.Finish());
      return arguments;
    }
    if (!writing_.tagged()) {
      SchemaGrammar writer(&reader, &grammar_, &budget_);
      constexpr JsonType kObject[] = {JsonType::kObject};
      ASSIGN_OR_RETURN(GrammarExpr object, writer.OfTypes(goal, kObject));
      RETURN_IF_ERROR(writer.Finish());
      return object;
    }
    const TaggedMarkup markup(writing_, format_, special_);
    SchemaGrammar writer(&reader, &grammar_, &budget_, markup.escaped);
    ASSIGN_OR_RETURN(GrammarExpr object, TaggedArgumentsOf(tool, goal, markup, &writer));
    RETURN_IF_ERROR(writer.Finish());
    return object;
  }

  absl::StatusOr<GrammarExpr> Answer(GrammarExpr call) {
    std::vector<GrammarExpr> calls = {Mark(writing_.open), call};
    if (!options_.one_call && !writing_.one_call) {
      calls.push_back(GrammarExpr::Repeat(GrammarExpr::Sequence({Mark(writing_.between), call}), 0,
                                          GrammarExpr::kNoLimit));
    }
    calls.push_back(Mark(writing_.close));
    GrammarExpr section = GrammarExpr::Sequence(std::move(calls));
    if (format_.body == Body::kHarmony) {
      for (const std::string_view token : format_.tokens) {
        if (!special_(token).has_value()) {
          return Error(
                     absl::StatusCode::kInvalidArgument, "TOOL_NOT_HELD",
                     absl::StrCat("no answer can be held whose messages are written as the format ",
                                  std::string(format_.name), " does: the vocabulary lacks ",
                                  std::string(token)))
              .Fact("field", offered_.tools().empty() ? "constraint" : "tools")
              .Hint("leave the constraint, tool_choice and strict out");
        }
      }
      return HarmonyAnswer(std::move(section));
    }
    GrammarExpr lines =
        GrammarExpr::Repeat(GrammarExpr::Class(CharSet::Of('\n')), 0, kMaxLinesBefore);
    if (!options_.may_be_text) {
      return GrammarExpr::Sequence({std::move(lines), std::move(section)});
    }
    if (options_.text != nullptr) {
      GrammarExpr text = GrammarExpr::Rule(grammar_.AddRulesOf(*options_.text));
      return GrammarExpr::Choice(
          {GrammarExpr::Sequence({std::move(lines), std::move(section)}), std::move(text)});
    }
    ASSIGN_OR_RETURN(GrammarExpr text, FreeText());
    if (format_.bare) {
      return GrammarExpr::Choice(
          {GrammarExpr::Sequence({std::move(lines), std::move(section)}), std::move(text)});
    }
    return GrammarExpr::Sequence({std::move(text), GrammarExpr::Optional(std::move(section))});
  }

  // Text that the reader takes for no call.
  absl::StatusOr<GrammarExpr> FreeText() {
    std::vector<std::string> openings;
    const auto add = [&](std::string_view opening) {
      if (!opening.empty() && !HasToken(Mark(opening))) openings.emplace_back(opening);
    };
    add(format_.section_open);
    add(format_.call_open);
    if (format_.body == Body::kTagged) add(format_.name_open);
    const RegexPtr any = RegexRepeat(RegexSet(CharSet::All()), 0, RegexNode::kNoLimit);
    ASSIGN_OR_RETURN(AutomatonPtr texts, AutomatonOf(any, &budget_));
    if (!openings.empty()) {
      ASSIGN_OR_RETURN(texts, TextsWithout(openings, &budget_));
    }
    if (format_.bare) {
      const CharSet blanks({{'\t', '\n'}, {'\r', '\r'}, {' ', ' '}});
      const RegexPtr bare =
          RegexConcat({RegexRepeat(RegexSet(blanks), 0, RegexNode::kNoLimit),
                       RegexText(format_.body == Body::kPython ? "[" : "{"), any});
      ASSIGN_OR_RETURN(const AutomatonPtr taken, AutomatonOf(bare, &budget_));
      ASSIGN_OR_RETURN(texts, DifferenceOf(texts, taken, &budget_));
    }
    return JsonTexts(&grammar_, &budget_).Raw(texts);
  }

  // The call; or a message to the user, or one and then the call.
  GrammarExpr HarmonyAnswer(GrammarExpr call) {
    const auto message = [&](std::string_view channel, GrammarExpr text, std::string_view behind) {
      return GrammarExpr::Sequence({Mark("<|channel|>"), GrammarExpr::Literal(std::string(channel)),
                                    Mark("<|message|>"), std::move(text), Mark(behind)});
    };
    std::vector<GrammarExpr> ways;
    if (options_.may_be_text && options_.text != nullptr) {
      ways.push_back(message("final", GrammarExpr::Rule(grammar_.AddRulesOf(*options_.text)), ""));
    } else if (options_.may_be_text) {
      const GrammarExpr any =
          GrammarExpr::Repeat(GrammarExpr::Class(CharSet::All()), 0, GrammarExpr::kNoLimit);
      ways.push_back(message("final", any, ""));
      ways.push_back(
          GrammarExpr::Sequence({message("commentary", any, "<|end|><|start|>assistant"), call}));
    }
    if (!offered_.tools().empty()) ways.push_back(std::move(call));
    return GrammarExpr::Choice(std::move(ways));
  }

  const OfferedTools& offered_;
  const CallGrammarOptions& options_;
  const ToolFormat& format_;
  const SpecialTokenFn special_;
  const CallWriting& writing_;
  WorkBudget budget_;
  Grammar grammar_;
};

}  // namespace

absl::StatusOr<Grammar> GrammarOfCalls(const OfferedTools& offered,
                                       const CallGrammarOptions& options) {
  return CallGrammarWriter(offered, options).Write();
}

}  // namespace strata
