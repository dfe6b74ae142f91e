// Messages as JSON documents, with the names of the public interface.
#ifndef STRATA_CLI_DOCUMENTS_H_
#define STRATA_CLI_DOCUMENTS_H_

#include <google/protobuf/repeated_ptr_field.h>

#include "cli/output.h"
#include "sdk/cpp/strata.h"

namespace strata::v1 {
class KvUse;
class ModelCheck;
class PlanStage;
class PredictedDrafts;
class Problem;
class Session;
}  // namespace strata::v1

namespace strata::cli {

Json NodeSummary(const v1::Node& node);
Json NodeDocument(const v1::Node& node);  // All that is known.
Json ModelSummary(const v1::Model& model);
Json ModelDocument(const v1::Model& model);
Json SessionDocument(const v1::Session& session);
Json KvDocument(const v1::KvUse& kv);
Json ProblemDocument(const v1::Problem& problem);
Json PlanDocument(const v1::Plan& plan);
Json DraftsDocument(const google::protobuf::RepeatedPtrField<v1::PredictedDrafts>& drafts);
Json CheckDocument(const std::string& model, const v1::ModelCheck& check);
// Log-probabilities appear where `with_logprobs` and `with_prompt_logprobs` say that they were
// asked for.
Json GenerationDocument(const sdk::Generation& generation, bool with_logprobs,
                        bool with_prompt_logprobs);

Json NodeList(const v1::ListNodesResponse& nodes);
Json ModelList(const v1::ListModelsResponse& models);
Json SessionList(const v1::ListSessionsResponse& sessions);
Json StatusDocument(const v1::GetStatusResponse& status);

// "latency", ...
std::string GoalName(const v1::Plan& plan);
// KV tokens that a stage's pages hold.
uint64_t StageKvTokens(const v1::PlanStage& stage);

}  // namespace strata::cli

#endif  // STRATA_CLI_DOCUMENTS_H_
