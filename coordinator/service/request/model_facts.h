// What a registered checkpoint has, and what of it can be used, before anything is loaded.
#ifndef STRATA_COORDINATOR_SERVICE_REQUEST_MODEL_FACTS_H_
#define STRATA_COORDINATOR_SERVICE_REQUEST_MODEL_FACTS_H_

#include "coordinator/service/request/model_runtime.h"
#include "strata/v1/admin.pb.h"

namespace strata {

// From the manifest, and from what could be made of tokenizer and chat template. Memory is what the
// planner counts. Renders the template a few times: not for the event loop.
v1::ModelFacts FactsOf(const ModelRuntime& model);

}  // namespace strata

#endif  // STRATA_COORDINATOR_SERVICE_REQUEST_MODEL_FACTS_H_
