#include "coordinator/deployment/load_messages.h"

#include <utility>

#include "common/limits.h"
#include "common/plan.h"

namespace strata {
namespace {

// What any stage's has, and the tensors of one with these layers.
v1::Load LoadOfLayers(const LoadSubject& subject, uint32_t first_layer, uint32_t last_layer) {
  const DeployedModel& model = *subject.model;
  v1::Load load;
  load.set_deployment(subject.deployment);
  load.set_epoch(subject.plan->epoch());
  load.set_model(model.name);
  load.set_config_json(model.config_json());
  load.set_weights_digest(model.weights_digest());
  load.set_first_layer(first_layer);
  load.set_last_layer(last_layer);
  const bool last = last_layer + 1 == model.spec().layers.size();
  for (v1::TensorBlob& tensor :
       model.StageTensors(first_layer, last_layer, first_layer == 0, last)) {
    *load.add_tensors() = std::move(tensor);
  }
  load.set_rotary_sha256(subject.rotary->sha256);
  load.set_rotary_bytes(subject.rotary->bytes);
  load.set_context(subject.options->context());
  load.set_kv_dtype(subject.options->kv_dtype());
  load.set_quantize(subject.options->quantize());
  load.set_activations(subject.options->activations());
  load.set_wire_dtype(v1::WIRE_DTYPE_F32);
  load.set_numerics_class(subject.plan->numerics_class().name());
  return load;
}

}  // namespace

v1::Load MakeLayerLoad(const LoadSubject& subject, uint32_t layer, uint32_t tokens, uint32_t rows) {
  const ModelSpec& spec = subject.model->spec();
  v1::Load load = LoadOfLayers(subject, layer, layer);
  load.set_stage(layer);
  load.set_stage_count(static_cast<uint32_t>(spec.layers.size()));
  for (uint32_t group = 0; group < spec.kv_groups.size(); ++group) {
    const bool used = KvBytesPerToken(spec, layer, layer, group, 1) != 0;
    load.add_kv_pages(used ? (tokens + kPageTokens - 1) / kPageTokens : 0);
  }
  load.set_max_batch_tokens(rows);
  load.set_max_batch_items(1);
  load.set_max_in_flight(1);
  return load;
}

v1::Load MakeStageLoad(const LoadSubject& subject, int index, const NextHop& next,
                       uint32_t max_batch_items, nanoseconds link_timeout) {
  const v1::PlanPipeline& pipeline = OnlyPipeline(*subject.plan);
  const v1::PlanStage& stage = pipeline.stages(index);
  v1::Load load = LoadOfLayers(subject, stage.first_layer(), stage.last_layer());
  load.set_stage(static_cast<uint32_t>(index));
  load.set_stage_count(static_cast<uint32_t>(pipeline.stages_size()));
  *load.mutable_kv_pages() = stage.kv_pages();
  load.set_max_batch_tokens(subject.options->max_batch_tokens());
  load.set_max_batch_items(max_batch_items);
  load.set_max_in_flight(static_cast<uint32_t>(pipeline.stages_size()) + 1);
  load.set_next_node(next.node);
  load.set_next_incarnation(next.incarnation);
  load.set_next_address(next.address);
  load.set_step_timeout_ms(static_cast<uint32_t>(ToMs(link_timeout)));
  return load;
}

}  // namespace strata
