#include "cli/tables.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <ostream>
#include <utility>
#include <vector>

#include "cli/documents.h"
#include "cli/output.h"
#include "common/plan.h"
#include "common/printable.h"
#include "common/units.h"
#include "strata/v1/admin.pb.h"
#include "strata/v1/planning.pb.h"

namespace strata::cli {
namespace {

std::string Age(double ms) {
  return FormatDuration(std::chrono::nanoseconds(static_cast<int64_t>(ms * 1e6)));
}

std::string Joined(const google::protobuf::RepeatedPtrField<std::string>& parts) {
  std::string text;
  for (const std::string& part : parts) {
    text += (text.empty() ? "" : ", ") + part;
  }
  return text.empty() ? "-" : text;
}

std::string Percent(uint64_t part, uint64_t whole) {
  return whole == 0 ? "-" : std::to_string(part * 100 / whole) + " %";
}

// "alice (key-1a2b3c4d)".
std::string KeyOf(const v1::Session& session) {
  if (session.key().empty()) return "-";
  return session.key_name().empty() ? session.key()
                                    : session.key_name() + " (" + session.key() + ")";
}

std::string DeviceOf(const v1::PlanStage& stage) {
  const v1::PlanRank* rank = FindRank(stage);
  return rank == nullptr || rank->device().empty() ? "-" : rank->device();
}

}  // namespace

std::string Layers(uint32_t first, uint32_t last) {
  return first == last ? "layer " + std::to_string(first)
                       : "layers " + std::to_string(first) + "-" + std::to_string(last);
}

std::string DeviceText(const v1::Node& node) {
  const bool named = node.backend() != "cpu" && !node.device_name().empty();
  const std::string& what = named ? node.device_name() : node.isa();
  return node.backend() + (what.empty() ? "" : "/" + what);
}

std::string ReadsText(const v1::Node& node) {
  return node.read_bytes_per_s() > 0
             ? FormatSize(static_cast<uint64_t>(node.read_bytes_per_s())) + "/s"
             : "-";
}

std::string ComputesText(const v1::Node& node) {
  return node.flops_per_s() > 0 ? Rounded(node.flops_per_s() / 1e9) + " GFLOP/s" : "-";
}

void PrintNodes(const google::protobuf::RepeatedPtrField<v1::Node>& nodes,
                const std::string& indent, std::ostream* out) {
  Table table({"NAME", "STATE", "ADDRESS", "BACKEND", ">MEMORY", ">READS", ">COMPUTES", "HOLDS"});
  for (const v1::Node& node : nodes) {
    const std::string memory = node.used_bytes() == 0 ? FormatSize(node.memory_bytes())
                                                      : FormatSize(node.used_bytes()) + " of " +
                                                            FormatSize(node.memory_bytes());
    table.AddRow({node.name(), node.state(), node.address(), DeviceText(node), memory,
                  ReadsText(node), ComputesText(node), Joined(node.models())});
  }
  table.Print(out, indent);
}

void PrintModels(const google::protobuf::RepeatedPtrField<v1::Model>& models,
                 const std::string& indent, std::ostream* out) {
  Table table({"NAME", "STATE", "FAMILY", ">LAYERS", ">WEIGHTS", "DTYPE", ">CONTEXT", "WHERE"});
  for (const v1::Model& model : models) {
    const std::string where = !model.problem().empty() ? model.problem()
                              : model.has_plan()       ? Placement(model.plan())
                                                       : "-";
    table.AddRow({model.name(), model.state(), model.family(), std::to_string(model.layers()),
                  FormatSize(model.weight_bytes()), model.dtype(), std::to_string(model.context()),
                  where});
  }
  table.Print(out, indent);
}

bool AnyDrafts(const google::protobuf::RepeatedPtrField<v1::Session>& sessions) {
  return std::any_of(sessions.begin(), sessions.end(),
                     [](const v1::Session& s) { return s.drafted_tokens() > 0; });
}

std::string DraftsOf(const v1::Session& session) {
  return std::to_string(session.accepted_tokens()) + "/" + std::to_string(session.drafted_tokens());
}

void PrintSessions(const google::protobuf::RepeatedPtrField<v1::Session>& sessions,
                   const std::string& indent, std::ostream* out) {
  const bool keys = std::any_of(sessions.begin(), sessions.end(),
                                [](const v1::Session& s) { return !s.key().empty(); });
  std::vector<std::string> head = {"REQUEST",    "MODEL",    "STATE", ">PROMPT",
                                   ">GENERATED", ">AT MOST", ">AGE"};
  const bool drafts = AnyDrafts(sessions);
  if (drafts) head.push_back(">DRAFTS");
  if (keys) head.push_back("KEY");
  Table table(head);
  for (const v1::Session& session : sessions) {
    std::vector<std::string> row = {session.request_id(),
                                    session.model(),
                                    session.state(),
                                    std::to_string(session.prompt_tokens()),
                                    std::to_string(session.generated_tokens()),
                                    std::to_string(session.max_tokens()),
                                    Age(session.age_ms())};
    if (drafts) row.push_back(DraftsOf(session));
    if (keys) row.push_back(KeyOf(session));
    table.AddRow(std::move(row));
  }
  table.Print(out, indent);
}

void PrintKv(const google::protobuf::RepeatedPtrField<v1::KvUse>& uses, const std::string& indent,
             std::ostream* out) {
  Table table({"MODEL", ">STAGE", "GROUP", ">PAGES", ">IN USE", ">LIVE", ">CACHED", ">FENCED"});
  for (const v1::KvUse& kv : uses) {
    table.AddRow({kv.model(), std::to_string(kv.stage()), kv.group(), std::to_string(kv.total()),
                  Percent(kv.total() - kv.free(), kv.total()), std::to_string(kv.live()),
                  std::to_string(kv.cached()), std::to_string(kv.fenced())});
  }
  table.Print(out, indent);
}

std::string Placement(const v1::Plan& plan) {
  std::string text;
  if (const v1::PlanPipeline* pipeline = FindPipeline(plan)) {
    for (const v1::PlanStage& stage : pipeline->stages()) {
      text += text.empty() ? "" : ", ";
      text += NodesOf(stage) + " (" + Layers(stage.first_layer(), stage.last_layer()) + ")";
    }
  }
  return text.empty() ? "-" : text;
}

std::string SchedulingText(const v1::Scheduling& scheduling) {
  std::string text = std::to_string(scheduling.step_tokens()) + " rows at most now";
  if (scheduling.max_batch_tokens() > scheduling.step_tokens()) {
    text += ", up to " + std::to_string(scheduling.max_batch_tokens());
  }
  text += ", " + Rounded(scheduling.prefill_step_ms()) + " ms on the slowest stage";
  if (scheduling.inter_token_target_ms() > 0) {
    text += "; beside answers as many as leave a token every " +
            Rounded(scheduling.inter_token_target_ms()) + " ms";
  }
  return text + "; up to " + Counted(scheduling.max_sessions(), "request") + " at a time";
}

namespace {

void PrintDrafts(const google::protobuf::RepeatedPtrField<v1::PredictedDrafts>& drafts,
                 std::ostream* out) {
  std::string label = "Drafts:     ";
  for (const v1::PredictedDrafts& predicted : drafts) {
    *out << label << "one answer " << Rounded(predicted.tokens_per_s()) << " tokens/s, "
         << Rounded(predicted.times()) << " times as many as without, where "
         << std::lround(predicted.right() * 100) << " % of guesses are right ("
         << Counted(predicted.drafts(), "draft") << " a step";
    if (predicted.steps() > 1) {
      *out << ", " << predicted.steps() << " steps at once";
    }
    *out << ")\n";
    label.assign(label.size(), ' ');
  }
}

}  // namespace

void PrintPlan(const v1::Plan& plan, std::ostream* out) { PrintPlan(plan, {}, out); }

void PrintPlan(const v1::Plan& plan,
               const google::protobuf::RepeatedPtrField<v1::PredictedDrafts>& drafts,
               std::ostream* out) {
  Table table({">STAGE", "NODE", "DEVICE", "LAYERS", ">WEIGHTS", ">KV", ">KV TOKENS", ">MS/TOKEN"});
  uint64_t kv_tokens = 0;
  if (const v1::PlanPipeline* pipeline = FindPipeline(plan)) {
    kv_tokens = pipeline->kv_tokens();
    for (int i = 0; i < pipeline->stages_size(); ++i) {
      const v1::PlanStage& stage = pipeline->stages(i);
      table.AddRow({std::to_string(i), NodesOf(stage), DeviceOf(stage),
                    std::to_string(stage.first_layer()) + "-" + std::to_string(stage.last_layer()),
                    FormatSize(stage.weight_bytes()), FormatSize(stage.kv_bytes()),
                    std::to_string(StageKvTokens(stage)), Rounded(stage.predicted_ms())});
    }
  }
  table.Print(out);
  *out << "\nGoal:       " << GoalName(plan) << "\nKV memory:  " << kv_tokens << " tokens\n"
       << "Speed:      " << Rounded(plan.predicted_tokens_per_s()) << " tokens/s predicted, within "
       << Rounded(plan.lower_bound_gap() * 100) << " % of the best possible\n";
  PrintDrafts(drafts, out);
  if (!plan.limiting_node().empty()) {
    *out << "Limited by: " << Printable(plan.limiting_node()) << "\n";
  }
  *out << "Numerics:   " << Printable(plan.numerics_class().name()) << "\n";
  if (plan.why_size() > 0) {
    *out << "Why:\n";
    for (const std::string& reason : plan.why()) {
      *out << "  - " << Printable(reason) << "\n";
    }
  }
}

}  // namespace strata::cli
