#include "cli/documents.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "common/limits.h"
#include "common/model/rank_outputs.h"
#include "common/plan.h"
#include "strata/v1/admin.pb.h"
#include "strata/v1/planning.pb.h"

namespace strata::cli {
namespace {

template <typename Messages, typename Convert>
Json ListOf(const Messages& messages, Convert convert) {
  Json list = Json::array();
  for (const auto& message : messages) {
    list.push_back(convert(message));
  }
  return list;
}

Json Strings(const google::protobuf::RepeatedPtrField<std::string>& strings) {
  Json list = Json::array();
  for (const std::string& text : strings) {
    list.push_back(text);
  }
  return list;
}

Json LogprobDocument(const sdk::TokenLogprob& logprob) {
  Json top = Json::array();
  for (const auto& [id, value] : logprob.top) {
    top.push_back(Json::array({id, value}));
  }
  return {{"token_id", logprob.token_id}, {"logprob", logprob.logprob}, {"top", std::move(top)}};
}

// The words of the flags of `model load`.
std::string Word(const std::string& enum_name, const std::string& prefix,
                 const std::string& fallback) {
  if (enum_name.rfind(prefix, 0) != 0 || enum_name == prefix + "UNSPECIFIED") {
    return fallback;
  }
  std::string word = enum_name.substr(prefix.size());
  std::transform(word.begin(), word.end(), word.begin(),
                 [](char c) { return static_cast<char>(c >= 'A' && c <= 'Z' ? c + 32 : c); });
  return word;
}

Json OptionsDocument(const v1::LoadOptions& options) {
  Json layers = ListOf(options.layers(), [](const auto& pinned) {
    Json ranks = ListOf(pinned.ranks(), [](const auto& rank) {
      return Json{{"node", rank.node()}, {"weight", rank.weight()}};
    });
    return Json{{"node", pinned.ranks().empty() ? pinned.node() : pinned.ranks().begin()->node()},
                {"ranks", std::move(ranks)},
                {"first_layer", pinned.first_layer()},
                {"last_layer", pinned.last_layer()}};
  });
  return {
      {"goal", Word(v1::PlanGoal_Name(options.goal()), "PLAN_GOAL_", "latency")},
      {"context", options.context()},
      {"sessions", options.sessions()},
      {"kv_tokens", options.kv_tokens()},
      {"quantize", Word(v1::Quantize_Name(options.quantize()), "QUANTIZE_", "none")},
      {"activations", Word(v1::Activations_Name(options.activations()), "ACTIVATIONS_", "auto")},
      {"kv_dtype", Word(v1::KvDtype_Name(options.kv_dtype()), "KV_DTYPE_", "f16")},
      {"recovery", Word(v1::Recovery_Name(options.recovery()), "RECOVERY_", "wait")},
      {"standby", options.standby()},
      {"ranks", options.ranks()},  // 0: as the plan found them best.
      // Coordinators that say nothing have no drafts.
      {"speculate", options.speculate().empty() ? "off" : options.speculate()},
      {"nodes", Strings(options.nodes())},
      {"layers", std::move(layers)}};
}

// A number of bytes where 0 says that there is none.
Json BytesOrNull(uint64_t bytes) { return bytes == 0 ? Json(nullptr) : Json(bytes); }
Json TextOrNull(const std::string& text) { return text.empty() ? Json(nullptr) : Json(text); }

Json FactsDocument(const v1::ModelFacts& facts) {
  Json formats = ListOf(facts.formats(), [](const v1::StoredFormat& format) {
    return Json{{"name", format.name()}, {"tensors", format.tensors()}, {"bytes", format.bytes()}};
  });
  Json layers = ListOf(facts.layers(), [](const v1::LayerFacts& layer) {
    return Json{{"weight_bytes", layer.weight_bytes()},
                {"weight_bytes_int8", BytesOrNull(layer.weight_bytes_int8())},
                {"weight_bytes_int4", BytesOrNull(layer.weight_bytes_int4())},
                {"kv_bytes_per_token", layer.kv_bytes_per_token()},
                {"kv_group", layer.kv_group()},
                {"experts", layer.experts()},
                {"experts_per_token", layer.experts_per_token()}};
  });
  return {{"container", facts.container()},
          {"formats", std::move(formats)},
          {"tokenizer", TextOrNull(facts.tokenizer())},
          {"tokenizer_ids", facts.tokenizer_ids()},
          {"chat_template", TextOrNull(facts.chat_template())},
          {"layers", std::move(layers)},
          {"embedding_bytes", facts.embedding_bytes()},
          {"head_bytes", facts.head_bytes()},
          {"weight_bytes",
           {{"none", facts.weight_bytes_none()},
            {"int8", BytesOrNull(facts.weight_bytes_int8())},
            {"int4", BytesOrNull(facts.weight_bytes_int4())}}},
          {"cannot", Strings(facts.cannot())}};
}

// As `node list` has it: what an upgrade looks at, too.
Json ListedNode(const v1::Node& node) {
  Json document = NodeSummary(node);
  document["incarnation"] = node.incarnation();
  document["version"] = node.version();
  document["models"] = Strings(node.models());
  return document;
}

}  // namespace

Json NodeSummary(const v1::Node& node) {
  return {{"name", node.name()},
          {"state", node.state()},
          {"address", node.address()},
          {"memory_bytes", node.memory_bytes()},
          {"backend", node.backend()},
          {"isa", node.isa()},
          {"device", TextOrNull(node.device_name())},
          {"read_bytes_per_s", node.read_bytes_per_s()},
          {"flops_per_s", node.flops_per_s()},
          {"host_memory_bytes", BytesOrNull(node.host_memory_bytes())},
          {"unfit", TextOrNull(node.unfit())}};
}

Json NodeDocument(const v1::Node& node) {
  Json document = ListedNode(node);
  document["used_bytes"] = node.used_bytes();
  document["host_used_bytes"] = BytesOrNull(node.host_used_bytes());
  document["devices"] = Json::array();
  for (const v1::Node::Device& device : node.devices()) {
    document["devices"].push_back({{"index", device.index()},
                                   {"device", device.name()},
                                   {"memory_bytes", device.memory_bytes()},
                                   {"share", device.share()},
                                   {"read_bytes_per_s", device.read_bytes_per_s()}});
  }
  document["threads"] = node.threads();
  document["platform"] = node.platform();
  document["cache_bytes"] = node.cache_bytes();
  document["fetched_bytes"] = node.fetched_bytes();
  document["fetched_from_workers_bytes"] = node.fetched_from_workers_bytes();
  document["sent_bytes"] = node.sent_bytes();
  document["bad_blobs"] = node.bad_blobs();
  document["cached_blobs"] = node.cached_blobs();
  document["packed_layers"] = node.packed_layers();
  document["standby_bytes"] = node.standby_bytes();
  document["disk_free_bytes"] =
      node.has_disk_free_bytes() ? Json(node.disk_free_bytes()) : Json(nullptr);
  document["heartbeat_age_ms"] = node.heartbeat_age_ms();
  document["links"] = ListOf(node.links(), [](const v1::Node::Link& link) {
    Json out{{"peer", link.peer()},
             {"latency_ms", link.latency_ms()},
             {"bytes_per_s", link.bytes_per_s()}};
    if (!link.error().empty()) {
      out["error"] = link.error();
    }
    return out;
  });
  return document;
}

Json ModelSummary(const v1::Model& model) {
  return {{"name", model.name()},
          {"state", model.state()},
          {"family", model.family()},
          {"digest", model.digest()}};
}

Json ModelDocument(const v1::Model& model) {
  Json document = ModelSummary(model);
  document["path"] = model.path();
  document["weight_bytes"] = model.weight_bytes();
  document["layers"] = model.layers();
  document["hidden_size"] = model.hidden_size();
  document["vocab_size"] = model.vocab_size();
  document["context"] = model.context();
  document["dtype"] = model.dtype();
  document["has_tokenizer"] = model.has_tokenizer();
  document["has_chat_template"] = model.has_chat_template();
  document["kv_bytes_per_token"] = model.kv_bytes_per_token();
  document["problem"] = model.problem();
  if (model.has_moves_to()) {
    document["moves_to"] = PlanDocument(model.moves_to());
  }
  if (!model.move_problem().empty()) {
    document["move_problem"] = model.move_problem();
  }
  document["notes"] = Strings(model.notes());
  if (model.has_facts()) {
    document["facts"] = FactsDocument(model.facts());
  }
  if (model.hop_ms() > 0) {
    document["hop_ms"] = model.hop_ms();
  }
  document["preemptions"] = model.preemptions();
  document["drafted_tokens"] = model.drafted_tokens();
  document["accepted_tokens"] = model.accepted_tokens();
  if (model.has_retry()) {
    document["retry"] = {{"in_s", model.retry().in_s()}, {"failed", model.retry().failed()}};
  }
  if (model.has_scheduling()) {
    const v1::Scheduling& scheduling = model.scheduling();
    document["scheduling"] = {{"step_tokens", scheduling.step_tokens()},
                              {"max_batch_tokens", scheduling.max_batch_tokens()},
                              {"max_sessions", scheduling.max_sessions()},
                              {"micro_batches", scheduling.micro_batches()},
                              {"prefill_step_ms", scheduling.prefill_step_ms()},
                              {"inter_token_target_ms", scheduling.inter_token_target_ms()}};
  }
  document["plan"] = model.has_plan() ? PlanDocument(model.plan()) : Json();
  document["standby"] = ListOf(model.standby(), [](const v1::StandbyLayers& layers) {
    return Json{{"first_layer", layers.first_layer()},
                {"last_layer", layers.last_layer()},
                {"of_node", layers.of_node()},
                {"node", TextOrNull(layers.node())},
                {"state", layers.state()},
                {"layers_done", layers.layers_done()},
                {"bytes", layers.bytes()},
                {"problem", TextOrNull(layers.problem())},
                {"problem_reason", TextOrNull(layers.problem_reason())}};
  });
  document["options"] = model.has_options() ? OptionsDocument(model.options()) : Json();
  return document;
}

Json SessionDocument(const v1::Session& session) {
  return {{"request_id", session.request_id()},
          {"model", session.model()},
          {"state", session.state()},
          {"prompt_tokens", session.prompt_tokens()},
          {"generated_tokens", session.generated_tokens()},
          {"max_tokens", session.max_tokens()},
          {"age_ms", session.age_ms()},
          {"steps", session.steps()},
          {"compute_ms", session.compute_ms()},
          {"wait_ms", session.wait_ms()},
          {"hop_ms", session.hop_ms()},
          {"drafted_tokens", session.drafted_tokens()},
          {"accepted_tokens", session.accepted_tokens()},
          {"key", session.key().empty() ? Json(nullptr) : Json(session.key())},
          {"key_name", session.key_name().empty() ? Json(nullptr) : Json(session.key_name())}};
}

namespace {

Json StageDocument(const v1::StageUse& stage) {
  return {{"model", stage.model()},       {"stage", stage.stage()},
          {"node", stage.node()},         {"compute_s", stage.compute_s()},
          {"bubble_s", stage.bubble_s()}, {"steps", stage.steps()},
          {"rows", stage.rows()}};
}

}  // namespace

Json KvDocument(const v1::KvUse& kv) {
  return {{"model", kv.model()},   {"stage", kv.stage()},  {"group", kv.group()},
          {"total", kv.total()},   {"free", kv.free()},    {"live", kv.live()},
          {"cached", kv.cached()}, {"fenced", kv.fenced()}};
}

Json ProblemDocument(const v1::Problem& problem) {
  return {{"what", problem.what()}, {"do", problem.do_()}};
}

std::string GoalName(const v1::Plan& plan) {
  return Word(v1::PlanGoal_Name(plan.goal()), "PLAN_GOAL_", "latency");
}

uint64_t StageKvTokens(const v1::PlanStage& stage) {
  // A group that sees a window needs fewer pages for as many tokens: the largest one counts.
  uint64_t pages = 0;
  for (const uint64_t group : stage.kv_pages()) {
    pages = std::max(pages, group);
  }
  return pages * kPageTokens;
}

// Of a stage: who computes which share of it. One rank has all.
Json RanksDocument(const v1::PlanStage& stage) {
  const bool one = stage.ranks_size() == 1;
  return ListOf(stage.ranks(), [&](const v1::PlanRank& rank) {
    const uint32_t parts = one ? kShareParts : rank.share_end() - rank.share_begin();
    return Json{{"node", rank.node()},
                {"share", static_cast<double>(parts) / kShareParts},
                {"weight_bytes", one ? stage.weight_bytes() : rank.weight_bytes()},
                {"kv_bytes", one ? stage.kv_bytes() : rank.kv_bytes()}};
  });
}

Json PlanDocument(const v1::Plan& plan) {
  Json stages = Json::array();
  uint64_t kv_tokens = 0;
  if (const v1::PlanPipeline* pipeline = FindPipeline(plan)) {
    kv_tokens = pipeline->kv_tokens();
    for (const v1::PlanStage& stage : pipeline->stages()) {
      const v1::PlanRank* rank = FindRank(stage);
      stages.push_back({{"node", rank != nullptr ? rank->node() : ""},
                        {"device", rank != nullptr ? rank->device() : ""},
                        {"first_layer", stage.first_layer()},
                        {"last_layer", stage.last_layer()},
                        {"weight_bytes", stage.weight_bytes()},
                        {"kv_bytes", stage.kv_bytes()},
                        {"kv_tokens", StageKvTokens(stage)},
                        {"predicted_ms", stage.predicted_ms()},
                        {"ranks", RanksDocument(stage)}});
    }
  }
  return {{"epoch", plan.epoch()},
          {"numerics_class", plan.numerics_class().name()},
          {"goal", GoalName(plan)},
          {"stages", std::move(stages)},
          {"kv_tokens", kv_tokens},
          {"limiting_node", plan.limiting_node()},
          {"predicted_tokens_per_s", plan.predicted_tokens_per_s()},
          {"lower_bound_gap", plan.lower_bound_gap()},
          {"why", Strings(plan.why())}};
}

Json DraftsDocument(const google::protobuf::RepeatedPtrField<v1::PredictedDrafts>& drafts) {
  return ListOf(drafts, [](const v1::PredictedDrafts& predicted) {
    return Json{{"right", predicted.right()},
                {"tokens_per_s", predicted.tokens_per_s()},
                {"times", predicted.times()},
                {"drafts", predicted.drafts()},
                {"steps", predicted.steps()}};
  });
}

Json CheckDocument(const std::string& model, const v1::ModelCheck& check) {
  Json document = {{"model", model},
                   {"equal", check.equal()},
                   {"layers", check.layers()},
                   {"tokens", check.tokens()},
                   {"reference_node", check.reference_node()},
                   {"numerics_class", check.numerics_class()},
                   {"plan_epoch", check.plan_epoch()}};
  if (!check.reference_nodes().empty()) {
    document["reference_nodes"] = Strings(check.reference_nodes());
  }
  if (!check.across_node().empty()) {
    document["across_node"] = check.across_node();
    document["tolerance"] = check.tolerance();
    document["largest_difference"] = check.largest_difference();
  }
  if (!check.equal()) {
    document["layer"] = check.layer();
    document["position"] = check.position();
    document["stage"] = check.stage();
    document["node"] = check.node();
    document["hint"] = check.hint();
  }
  return document;
}

Json GenerationDocument(const sdk::Generation& generation, bool with_logprobs,
                        bool with_prompt_logprobs) {
  Json document{{"request_id", generation.request_id},
                {"text", generation.text},
                {"token_ids", generation.token_ids},
                {"finish_reason", generation.finish_reason},
                {"usage",
                 {{"prompt_tokens", generation.prompt_tokens},
                  {"completion_tokens", generation.token_ids.size()},
                  {"cached_tokens", generation.cached_tokens}}},
                {"seed", generation.seed},
                {"numerics_class", generation.numerics_class},
                {"plan_epoch", generation.plan_epoch}};
  // Of answers that have such.
  for (const sdk::NumericsChange& change : generation.numerics_changes) {
    document["numerics_changes"].push_back(
        {{"token", change.token}, {"numerics_class", change.numerics_class}});
  }
  if (generation.drafted_tokens > 0) {
    document["usage"]["drafted_tokens"] = generation.drafted_tokens;
    document["usage"]["accepted_tokens"] = generation.accepted_tokens;
  }
  if (!generation.thought.empty()) {
    document["thought"] = generation.thought;
    document["usage"]["reasoning_tokens"] = generation.reasoning_tokens;
  }
  for (const sdk::ToolCall& call : generation.tool_calls) {
    document["tool_calls"].push_back(
        {{"id", call.id}, {"name", call.name}, {"arguments", call.arguments}});
  }
  if (with_logprobs) {
    document["logprobs"] = ListOf(generation.logprobs, LogprobDocument);
  }
  if (with_prompt_logprobs) {
    Json list = Json::array({nullptr});  // Nothing comes before the first token.
    for (const sdk::TokenLogprob& logprob : generation.prompt_logprobs) {
      list.push_back(LogprobDocument(logprob));
    }
    document["prompt_logprobs"] = std::move(list);
  }
  return document;
}

Json NodeList(const v1::ListNodesResponse& nodes) {
  return {{"nodes", ListOf(nodes.nodes(), ListedNode)}};
}

Json ModelList(const v1::ListModelsResponse& models) {
  return {{"models", ListOf(models.models(), ModelSummary)}};
}

Json SessionList(const v1::ListSessionsResponse& sessions) {
  return {{"sessions", ListOf(sessions.sessions(), SessionDocument)}};
}

Json WaitDocument(const v1::Wait& wait) {
  return {{"what", wait.what()},
          {"node", TextOrNull(wait.node())},
          {"model", TextOrNull(wait.model())},
          {"for_s", wait.for_s()},
          {"limit_s", wait.limit_s() > 0 ? Json(wait.limit_s()) : Json(nullptr)}};
}

Json StatusDocument(const v1::GetStatusResponse& status) {
  return {{"nodes", ListOf(status.nodes(), NodeSummary)},
          {"models", ListOf(status.models(), ModelSummary)},
          {"sessions", ListOf(status.sessions(), SessionDocument)},
          {"kv", ListOf(status.kv(), KvDocument)},
          {"stages", ListOf(status.stages(), StageDocument)},
          {"problems", ListOf(status.problems(), ProblemDocument)},
          {"waits", ListOf(status.waits(), WaitDocument)},
          {"version", status.version()},
          {"uptime_s", status.uptime_s()},
          {"http_address", status.http_address()}};
}

}  // namespace strata::cli
