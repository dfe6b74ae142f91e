// A model as its deployment needs it: what its workers are told to load. Free of tokenizers and
// templates, which only requests need.
#ifndef STRATA_COORDINATOR_DEPLOYMENT_DEPLOYED_MODEL_H_
#define STRATA_COORDINATOR_DEPLOYMENT_DEPLOYED_MODEL_H_

#include <cstdint>
#include <string>
#include <vector>

#include "common/model/model_spec.h"
#include "strata/v1/membership.pb.h"

namespace strata {

// Const once it is made; any thread.
struct DeployedModel {
  virtual ~DeployedModel() = default;

  std::string name;

  virtual const ModelSpec& spec() const = 0;
  virtual const std::string& config_json() const = 0;
  virtual const std::string& weights_digest() const = 0;
  // The tensors that a stage of layers [first_layer, last_layer] needs, with their digests; those
  // of the embedding and of the head too where it has them.
  virtual std::vector<v1::TensorBlob> StageTensors(uint32_t first_layer, uint32_t last_layer,
                                                   bool embeds, bool heads) const = 0;
};

}  // namespace strata

#endif  // STRATA_COORDINATOR_DEPLOYMENT_DEPLOYED_MODEL_H_
