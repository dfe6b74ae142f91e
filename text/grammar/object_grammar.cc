// Objects of a schema as rules.
#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "common/status.h"
#include "text/grammar/schema_errors.h"
#include "text/grammar/schema_grammar.h"

namespace strata {
namespace {

constexpr size_t kMaxCounted = 2'000;
constexpr size_t kMaxClasses = 64;

// Members in the order of the properties, and behind them all others. What is left to write depends
// on the next property and on how many members there are, as far as that matters.
class ObjectWriter {
 public:
  ObjectWriter(const ObjectShape& shape, SchemaGrammar* writer) : shape_(shape), writer_(writer) {}

  absl::StatusOr<GrammarExpr> Content() {
    RETURN_IF_ERROR(ReadProperties());
    RETURN_IF_ERROR(ReadOthers());
    size_t required = 0;
    for (const Member& member : members_) {
      required += member.required ? 1 : 0;
      first_required_ += required == 0 ? 1 : 0;
    }
    counts_ = shape_.min > required ||
              (shape_.max != kNoCount && (HasOthers() || shape_.max < members_.size()));
    cap_ = counts_ ? (shape_.max != kNoCount ? shape_.max : shape_.min) : 1;
    if (members_.size() > 0 && cap_ > kMaxCounted / members_.size()) {
      return SchemaTooComplex("members that are counted", kMaxCounted);
    }
    return From(0, 0);
  }

 private:
  struct Member {
    GrammarExpr text;  // Without a comma.
    bool required;
  };

  bool HasOthers() const { return !others_.IsNothing(); }

  absl::Status ReadProperties() {
    std::vector<ObjectShape::Property> properties = shape_.properties;
    std::stable_partition(properties.begin(), properties.end(),
                          [](const ObjectShape::Property& p) { return p.declared; });
    std::set<std::string> names;
    for (const ObjectShape::Property& property : properties) {
      names.insert(property.name);
      Goal goal = property.goal;
      for (const ObjectShape::Rule& rule : shape_.rules) {
        if (rule.names.Contains(property.name)) {
          goal.Add(rule.goal);
        }
      }
      if (goal.IsNothing() && !property.required) {
        continue;
      }
      members_.push_back(
          {writer_->texts().Member(writer_->texts().Literal(property.name), writer_->Refer(goal)),
           property.required});
    }
    others_names_ = KeySet::AllBut(std::move(names));
    return absl::OkStatus();
  }

  // Sorts all other names by which rules they are under.
  absl::Status ReadOthers() {
    struct Class {
      KeySet names;
      Goal goal;
    };
    WorkBudget* const budget = writer_->budget();
    std::vector<Class> classes = {{others_names_, Goal()}};
    for (const ObjectShape::Rule& rule : shape_.rules) {
      ASSIGN_OR_RETURN(const KeySet outside, rule.names.Complement(budget));
      std::vector<Class> next;
      for (Class& one : classes) {
        ASSIGN_OR_RETURN(KeySet in, one.names.Intersection(rule.names, budget));
        ASSIGN_OR_RETURN(KeySet out, one.names.Intersection(outside, budget));
        Goal goal = one.goal;
        goal.Add(rule.goal);
        if (!out.IsEmpty()) {
          next.push_back({std::move(out), one.goal});
        }
        if (!in.IsEmpty() && !goal.IsNothing()) {
          next.push_back({std::move(in), std::move(goal)});
        }
      }
      classes = std::move(next);
      if (classes.size() > kMaxClasses) {
        return SchemaTooComplex("classes of names in one object", kMaxClasses);
      }
    }
    std::vector<GrammarExpr> ways;
    for (const Class& one : classes) {
      GrammarExpr name = GrammarExpr::Nothing();
      if (one.names.IsAll()) {
        ASSIGN_OR_RETURN(name, writer_->texts().String(StringSet()));
      } else {
        ASSIGN_OR_RETURN(const AutomatonPtr texts, one.names.ToAutomaton(budget));
        ASSIGN_OR_RETURN(name, writer_->texts().String(texts));
      }
      ways.push_back(writer_->texts().Member(std::move(name), writer_->Refer(one.goal)));
    }
    others_ = GrammarExpr::Nothing();
    if (!ways.empty()) {
      const size_t rule = writer_->grammar().AddRule("other");
      writer_->grammar().SetBody(rule, GrammarExpr::Choice(std::move(ways)));
      others_ = GrammarExpr::Rule(rule);
    }
    return absl::OkStatus();
  }

  GrammarExpr WithComma(size_t count, const GrammarExpr& member) {
    return count == 0 ? member : GrammarExpr::Sequence({writer_->texts().Comma(), member});
  }

  // The members from property `next` on, where `count` are written (as far as it matters), and the
  // blanks behind the last.
  absl::StatusOr<GrammarExpr> From(size_t next, size_t count) {
    if (next == members_.size()) {
      return Others(count);
    }
    const Member& member = members_[next];
    const bool decided = !counts_ && count > 0;  // Members do not depend on each other any more.
    if (decided && IsReachedOnce(next)) {
      return Decided(next);
    }
    const auto [found, added] = rules_.emplace(std::pair(next, count), 0);
    if (!added) {
      return GrammarExpr::Rule(found->second);
    }
    const size_t rule = writer_->grammar().AddRule("members");
    found->second = rule;
    std::vector<GrammarExpr> ways;
    if (decided) {
      ASSIGN_OR_RETURN(GrammarExpr all, Decided(next));
      ways.push_back(std::move(all));
    } else {
      if (count < cap_ || !counts_ || shape_.max == kNoCount) {
        ASSIGN_OR_RETURN(GrammarExpr rest, From(next + 1, std::min(count + 1, cap_)));
        ways.push_back(GrammarExpr::Sequence({WithComma(count, member.text), std::move(rest)}));
      }
      if (!member.required) {
        ASSIGN_OR_RETURN(GrammarExpr rest, From(next + 1, count));
        ways.push_back(std::move(rest));
      }
    }
    writer_->grammar().SetBody(rule, GrammarExpr::Choice(std::move(ways)));
    return GrammarExpr::Rule(rule);
  }

  // From `next` on, behind a member: one sequence, as far as nothing else leads into it.
  absl::StatusOr<GrammarExpr> Decided(size_t next) {
    std::vector<GrammarExpr> parts;
    do {
      GrammarExpr own = WithComma(1, members_[next].text);
      parts.push_back(members_[next].required ? std::move(own)
                                              : GrammarExpr::Optional(std::move(own)));
      ++next;
    } while (next < members_.size() && IsReachedOnce(next));
    ASSIGN_OR_RETURN(GrammarExpr rest, From(next, 1));
    parts.push_back(std::move(rest));
    return GrammarExpr::Sequence(std::move(parts));
  }

  // Whether there is one way only to have a member before property `next` > 0.
  bool IsReachedOnce(size_t next) const {
    return next > first_required_ + 1 || (first_required_ == 0 && next == 1);
  }

  absl::StatusOr<GrammarExpr> Others(size_t count) {
    const size_t missing = counts_ && shape_.min > count ? shape_.min - count : 0;
    const GrammarExpr blanks = writer_->texts().Whitespace();
    if (!HasOthers()) {
      return missing > 0 ? GrammarExpr::Nothing() : count > 0 ? blanks : GrammarExpr::EmptyText();
    }
    if (missing > 1) {
      // Two names that are free may be the same.
      return writer_->reader().keywords().Unsupported(
          *shape_.counted, "minProperties", "names that are not listed may be written twice");
    }
    const size_t left = !counts_ || shape_.max == kNoCount ? kNoCount : shape_.max - count;
    if (left == 0) {
      return missing > 0 ? GrammarExpr::Nothing() : count > 0 ? blanks : GrammarExpr::EmptyText();
    }
    const GrammarExpr further = GrammarExpr::Sequence({writer_->texts().Comma(), others_});
    if (count > 0) {
      return GrammarExpr::Sequence({GrammarExpr::Repeat(further, missing, left), blanks});
    }
    const GrammarExpr filled = GrammarExpr::Sequence(
        {others_, GrammarExpr::Repeat(further, 0, left == kNoCount ? kNoCount : left - 1), blanks});
    return missing > 0 ? filled : GrammarExpr::Optional(filled);
  }

  const ObjectShape& shape_;
  SchemaGrammar* const writer_;
  std::vector<Member> members_;
  size_t first_required_ = 0;  // How many optional ones stand before it.
  KeySet others_names_;
  GrammarExpr others_;   // One member of another name.
  bool counts_ = false;  // Whether it matters how many members there are.
  size_t cap_ = 0;       // From here on it does not.
  std::map<std::pair<size_t, size_t>, size_t> rules_;
};

}  // namespace

absl::StatusOr<GrammarExpr> WriteObject(const ObjectShape& shape, SchemaGrammar* writer) {
  ASSIGN_OR_RETURN(GrammarExpr content, ObjectWriter(shape, writer).Content());
  return GrammarExpr::Sequence({GrammarExpr::Literal("{"), writer->texts().Whitespace(),
                                std::move(content), GrammarExpr::Literal("}")});
}

}  // namespace strata
