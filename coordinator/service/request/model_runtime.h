// A registered model as the coordinator uses it: manifest, tokenizer, chat template, defaults.
// Const after construction; any thread.
#ifndef STRATA_COORDINATOR_SERVICE_REQUEST_MODEL_RUNTIME_H_
#define STRATA_COORDINATOR_SERVICE_REQUEST_MODEL_RUNTIME_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "coordinator/deployment/deployed_model.h"
#include "coordinator/engine/session.h"
#include "coordinator/planner/planner.h"
#include "coordinator/registry/manifest.h"
#include "strata/v1/admin.pb.h"
#include "strata/v1/inference.pb.h"
#include "strata/v1/membership.pb.h"
#include "text/template/chat_template.h"
#include "text/tokenizer/tokenizer.h"

namespace strata {

struct ModelRuntime : DeployedModel {
  std::shared_ptr<const ModelManifest> manifest;
  std::unique_ptr<Tokenizer> tokenizer;         // Null without tokenizer.json.
  std::unique_ptr<ChatTemplate> chat_template;  // Null without one.
  absl::Status tokenizer_problem;               // Why tokenizer or template are null, when asked.
  absl::Status template_problem;
  bool arguments_as_text = false;  // WantsArgumentsAsText of the template.
  v1::SamplingParams defaults;     // generation_config's.
  // As stored. Counting takes a while where there are many experts: MakeModelRuntime does it once.
  std::optional<WeightAccount> account;

  const ModelSpec& spec() const override { return manifest->spec; }
  const std::string& config_json() const override { return manifest->config_json; }
  const std::string& weights_digest() const override { return manifest->weights_digest; }
  std::vector<v1::TensorBlob> StageTensors(uint32_t first_layer, uint32_t last_layer, bool embeds,
                                           bool heads) const override;
  // Ids of a prompt's text. FAILED_PRECONDITION (NO_TOKENIZER) when there is none.
  absl::StatusOr<std::vector<uint32_t>> Encode(const std::string& text,
                                               bool add_special_tokens) const;
  // The same of a prompt that is to be served: a text of which its bytes or the first ids too many
  // say that it is longer than `limit` gives is refused with that, or with why there is no limit.
  // It is asked for long texts only, may wait, and may be null.
  using LimitFn = std::function<absl::StatusOr<PromptLimit>()>;
  absl::StatusOr<std::vector<uint32_t>> EncodePrompt(const std::string& text,
                                                     bool add_special_tokens,
                                                     const LimitFn& limit) const;
  // The same of a text that need not be served: refused (CONTEXT_EXCEEDED) where its bytes alone
  // say that it has more ids than the model has context.
  absl::StatusOr<std::vector<uint32_t>> EncodeAny(const std::string& text,
                                                  bool add_special_tokens) const;
  // The prompt that the chat template makes of messages, as RenderChatPrompt says.
  // FAILED_PRECONDITION (NO_CHAT_TEMPLATE).
  absl::StatusOr<std::string> RenderChat(const v1::ChatInput& chat, int64_t now) const;
  // What the planner needs, for these options.
  PlannerModel ForPlanner(const v1::LoadOptions& options) const;
};

// Reads tokenizer and template of a registered model. A tokenizer that is not supported does not
// fail the model: it then takes token ids only, and says why.
absl::StatusOr<std::shared_ptr<const ModelRuntime>> MakeModelRuntime(
    std::string name, std::shared_ptr<const ModelManifest> manifest);

// What `model list` says of it; state, plan and options are the caller's, facts FactsOf's.
v1::Model DescribeModel(const ModelRuntime& model);

}  // namespace strata

#endif  // STRATA_COORDINATOR_SERVICE_REQUEST_MODEL_RUNTIME_H_
