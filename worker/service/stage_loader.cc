#include "worker/service/stage_loader.h"

#include <algorithm>
#include <map>
#include <set>
#include <string_view>
#include <utility>

#include "common/checkpoint/checkpoint.h"
#include "common/clock.h"
#include "common/footprint/device_limits.h"
#include "common/footprint/footprint.h"
#include "common/footprint/rank_footprint.h"
#include "common/layer_weights.h"
#include "common/limits.h"
#include "common/model/gpt_oss_experts.h"
#include "common/model/numerics_class.h"
#include "common/model/rank_outputs.h"
#include "common/status.h"
#include "common/units.h"
#include "worker/weights/packed_files.h"
#include "worker/weights/stored_tensors.h"

namespace strata {
namespace {

absl::Status BadLoad(const std::string& what) {
  return Error(absl::StatusCode::kInvalidArgument, "BAD_LOAD", "the coordinator's Load: " + what);
}

absl::Status NotYet(const std::string& what) {
  return Error(absl::StatusCode::kUnimplemented, "NOT_IMPLEMENTED", what + " is not supported yet");
}

absl::StatusOr<const char*> KvName(v1::KvDtype dtype) {
  switch (dtype) {
    case v1::KV_DTYPE_UNSPECIFIED:
    case v1::KV_DTYPE_F16:
      return "f16";
    case v1::KV_DTYPE_F32:
      return "f32";
    default:
      return NotYet("--kv-dtype bf16");
  }
}

// The value of "KEY=" in a class's name, up to ',' or '/'.
std::string ClassField(const std::string& name, const std::string& key) {
  for (const char* before : {"/", ","}) {
    const size_t at = name.find(before + key + "=");
    if (at != std::string::npos) {
      const size_t begin = at + key.size() + 2;
      return name.substr(begin, name.find_first_of(",/", begin) - begin);
    }
  }
  return "";
}

// The head is the embedding again where they are tied.
bool IsHead(const ModelSpec& spec, const std::string& tensor) {
  return tensor.starts_with(spec.tensor_prefix +
                            (spec.tied_head ? "model.embed_tokens." : "lm_head."));
}

// A format of those matrices, the head's or the layers', that `all`, names joined by '+', does not
// have, or "".
std::string OtherFormat(const StageRequest& request, bool head, const std::string& all) {
  const ModelSpec& spec = request.spec.model;
  const v1::Quantize quantize = QuantizeOf(request.spec.quantize, /*in_layer=*/!head);
  std::map<std::string_view, Dtype> dtypes;
  for (const BlobTensor& tensor : request.tensors) {
    dtypes[tensor.name] = LoadedDtype(tensor.name, tensor.dtype);
  }
  for (const StageTensor& need : request.needs) {
    const bool wanted =
        head ? IsHead(spec, need.name) : need.name.find("layers.") != std::string::npos;
    if (!wanted || LoadedShape(need).matrices == 0 || need.part || StaysAsStored(need.name)) {
      continue;
    }
    std::string name = LoadedFormat(spec, need, dtypes.at(need.name), quantize);
    if (("+" + all + "+").find("+" + name + "+") == std::string::npos) {
      return name;
    }
  }
  return "";
}

absl::Status CheckNumericsClass(const v1::Load& load, const StageRequest& request,
                                const std::string& numerics, const std::string& kv) {
  const std::string& name = load.numerics_class();
  const std::string weights = OtherFormat(request, /*head=*/false, ClassField(name, "w"));
  // Only the last stage has one.
  const std::string head =
      request.spec.heads ? OtherFormat(request, /*head=*/true, ClassField(name, "head")) : "";
  struct {
    const char* what;
    std::string theirs, ours;
  } const fields[] = {
      {"backend and numerics version",
       NumericsOfLayers(name, request.spec.first_layer, request.spec.last_layer), numerics},
      {"activations", ClassField(name, "act"),
       load.activations() == v1::ACTIVATIONS_INT8 ? "int8" : "f32"},
      {"KV dtype", ClassField(name, "kv"), kv},
      {"weights", ClassField(name, "w"), weights},
      {"head", ClassField(name, "head"), head},
  };
  for (const auto& field : fields) {
    if (!field.ours.empty() && field.theirs != field.ours) {
      return Error(absl::StatusCode::kFailedPrecondition, "NUMERICS_CLASS",
                   "the deployment's numerics class is " + name + ", and this worker's " +
                       field.what + " would be " + field.ours)
          .Hint("place the model on workers of one backend and version");
    }
  }
  return absl::OkStatus();
}

absl::Status CheckOptions(const v1::Load& load) {
  if (load.wire_dtype() == v1::WIRE_DTYPE_BF16) {
    return NotYet("a bfloat16 wire");
  }
  if (load.deployment() == 0 || load.epoch() == 0 || load.stage() >= load.stage_count() ||
      load.first_layer() > load.last_layer()) {
    return BadLoad("deployment, epoch, stage or layers make no sense");
  }
  if (load.context() == 0 || load.context() > kMaxContextTokens || load.max_batch_tokens() == 0 ||
      load.max_batch_items() == 0 || load.max_in_flight() == 0 || load.max_in_flight() > 4096) {
    return BadLoad("context, batch or steps in flight make no sense");
  }
  return absl::OkStatus();
}

// None: the stage has one rank.
absl::StatusOr<std::optional<RankPlace>> RankPlaceOf(const v1::Load& load) {
  if (!load.has_ranks()) {
    return std::nullopt;
  }
  const v1::RanksOfLoad& ranks = load.ranks();
  if (ranks.of_size() < 2 || static_cast<uint32_t>(ranks.of_size()) > kMostRanks ||
      ranks.rank() >= static_cast<uint32_t>(ranks.of_size())) {
    return BadLoad("rank " + std::to_string(ranks.rank()) + " of " +
                   std::to_string(ranks.of_size()));
  }
  RankPlace place;
  place.rank = ranks.rank();
  uint32_t begin = 0;
  for (const v1::RankOfLoad& rank : ranks.of()) {
    if (rank.share_begin() != begin || rank.share_end() <= begin ||
        rank.share_end() > kShareParts) {
      return BadLoad("the ranks' shares are not one behind another");
    }
    begin = rank.share_end();
    place.shares.push_back({rank.share_begin(), rank.share_end()});
  }
  if (begin != kShareParts) {
    return BadLoad("the ranks' shares are not of all outputs");
  }
  return place;
}

// Every tensor that the stage needs is there, with its shape; adds what each is for, and what all
// take.
absl::Status CheckTensors(const Footprint& footprint, const std::vector<DividingDevice>& devices,
                          StageRequest* request) {
  const StageSpec& spec = request->spec;
  std::map<std::string_view, const BlobTensor*> by_name;
  for (const BlobTensor& tensor : request->tensors) {
    if (!by_name.emplace(tensor.name, &tensor).second) {
      return BadLoad("tensor " + tensor.name + " is named twice");
    }
  }
  request->needs = TensorsOf(spec.model, spec.first_layer, spec.last_layer, spec.embeds, spec.heads,
                             [&](const std::string& name) { return by_name.contains(name); });
  StagedWeights staged;
  for (const StageTensor& need : request->needs) {
    const auto it = by_name.find(need.name);
    if (it == by_name.end()) {
      return BadLoad("tensor " + need.name + " is missing");
    }
    if (!need.Fits(it->second->shape)) {
      return BadLoad("tensor " + need.name + " has another shape than config.json says");
    }
    const bool in_layer = need.name.find("layers.") != std::string::npos;
    const uint64_t bytes = footprint.WeightBytes(need, it->second->dtype, it->second->blob.bytes,
                                                 QuantizeOf(spec.quantize, in_layer));
    request->weight_bytes += bytes;
    staged.Add(need, it->second->dtype, it->second->blob.bytes, bytes);
  }
  request->host_bytes =
      footprint.HostBytes(spec.model, spec.max_batch_tokens, spec.heads, spec.context);
  request->staged_bytes = request->host_bytes == 0 ? 0 : staged.MostBytes();
  if (!devices.empty()) {
    request->on_devices = NeedsOfDevices(
        devices, footprint, spec, request->needs,
        [&](const std::string& name) -> const BlobTensor& { return *by_name.at(name); });
    request->host_bytes += (devices.size() - 1) * kPinnedBytes;
    request->staged_bytes = request->on_devices.staged_bytes;
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<StageRequest> CheckLoad(const v1::Load& load, const Backend& backend) {
  RETURN_IF_ERROR(CheckOptions(load));
  ASSIGN_OR_RETURN(const std::string kv, KvName(load.kv_dtype()));
  StageRequest request;
  StageSpec& spec = request.spec;
  ASSIGN_OR_RETURN(spec.model, ParseModelConfig(load.config_json(), ""));
  if (load.last_layer() >= spec.model.layers.size()) {
    return BadLoad("layer " + std::to_string(load.last_layer()) + " of a model of " +
                   std::to_string(spec.model.layers.size()));
  }
  spec.first_layer = load.first_layer();
  spec.last_layer = load.last_layer();
  spec.embeds = load.stage() == 0;
  spec.heads = load.stage() + 1 == load.stage_count();
  if (spec.embeds != (spec.first_layer == 0) ||
      spec.heads != (spec.last_layer + 1 == spec.model.layers.size())) {
    return BadLoad("the first stage begins with layer 0 and the last one ends with the last layer");
  }
  spec.context = load.context();
  spec.kv_pages.assign(load.kv_pages().begin(), load.kv_pages().end());
  if (spec.kv_pages.size() != spec.model.kv_groups.size()) {
    return BadLoad("KV pages of " + std::to_string(spec.kv_pages.size()) +
                   " groups for a model of " + std::to_string(spec.model.kv_groups.size()));
  }
  spec.kv_dtype = load.kv_dtype() == v1::KV_DTYPE_F32 ? v1::KV_DTYPE_F32 : v1::KV_DTYPE_F16;
  spec.quantize = load.quantize() == v1::QUANTIZE_UNSPECIFIED ? v1::QUANTIZE_NONE : load.quantize();
  spec.activations =
      load.activations() == v1::ACTIVATIONS_INT8 ? v1::ACTIVATIONS_INT8 : v1::ACTIVATIONS_F32;
  spec.max_batch_tokens = load.max_batch_tokens();
  spec.max_batch_items = load.max_batch_items();
  // A worker takes a step for hung after its timeout: ranks that wait say so before.
  spec.rank_wait = milliseconds(load.step_timeout_ms()) / 2;
  ASSIGN_OR_RETURN(request.place, RankPlaceOf(load));
  const Footprint* footprint = &FootprintOf(backend.name());
  std::optional<RankFootprint> of_rank;
  if (request.place.has_value()) {
    const uint32_t rank = request.place->rank;
    of_rank.emplace(*footprint, spec.model,
                    RankOfStage{.outputs = SplitOutputs(spec.model, request.place->shares)[rank],
                                .first = rank == 0,
                                .embeds = spec.embeds,
                                .heads = spec.heads});
    footprint = &*of_rank;
  }
  for (uint32_t group = 0; group < spec.kv_pages.size(); ++group) {
    const uint64_t page_bytes =
        footprint->PageBytes(spec.model, spec.first_layer, spec.last_layer, group, spec.kv_dtype);
    if (page_bytes != 0 && spec.kv_pages[group] > (uint64_t{1} << 50) / page_bytes) {
      return BadLoad("more KV pages than any machine has");
    }
    request.kv_bytes += spec.kv_pages[group] * page_bytes;
  }
  for (const v1::TensorBlob& blob : load.tensors()) {
    ASSIGN_OR_RETURN(BlobTensor tensor, MakeBlobTensor(blob.name(), blob.dtype(),
                                                       {blob.shape().begin(), blob.shape().end()},
                                                       blob.sha256(), blob.bytes()));
    request.tensors.push_back(std::move(tensor));
  }
  const std::vector<DividingDevice> devices = backend.facts().devices;
  if (request.place.has_value() && !devices.empty()) {
    return NotYet("a stage over other workers on a worker with several devices");
  }
  RETURN_IF_ERROR(CheckTensors(*footprint, devices, &request));
  request.rotary = {load.rotary_sha256(), load.rotary_bytes()};
  const uint64_t rotary_bytes = RotaryFloats(spec.model, spec.context) * sizeof(float);
  if (request.rotary.bytes != rotary_bytes) {
    return BadLoad("rotary tables of " + std::to_string(request.rotary.bytes) + " bytes, not " +
                   std::to_string(rotary_bytes));
  }
  RETURN_IF_ERROR(CheckNumericsClass(load, request, backend.numerics(), kv));
  return request;
}

namespace {

std::string LayersOfLoad(const v1::Load& load) {
  return "layers " + std::to_string(load.first_layer()) + "-" + std::to_string(load.last_layer());
}

// `what` says what the bytes are for.
absl::Status ReserveMemory(const v1::Load& load, uint64_t needs, const std::string& what,
                           const LoadContext& context) {
  const uint64_t free = context.reserve_memory(needs);
  if (needs <= free) {
    return absl::OkStatus();
  }
  return Error(absl::StatusCode::kResourceExhausted, "MEMORY_LIMIT",
               LayersOfLoad(load) + " need " + what + ", and " + FormatSize(free) +
                   " of --memory are free")
      .Limit("memory_bytes=" + std::to_string(free))
      .Hint("raise --memory of this worker, or load with a smaller --kv-tokens");
}

// For weights and KV.
absl::Status ReserveStage(const v1::Load& load, const StageRequest& request,
                          const LoadContext& context) {
  if (request.on_devices.devices.empty()) {
    return ReserveMemory(load, request.weight_bytes + request.kv_bytes,
                         FormatSize(request.weight_bytes) + " for weights and " +
                             FormatSize(request.kv_bytes) + " for KV",
                         context);
  }
  const uint64_t needs = request.on_devices.CountedBytes();
  const uint64_t free = context.reserve_memory(needs);
  return needs <= free ? absl::OkStatus() : request.on_devices.NoRoom(LayersOfLoad(load), free);
}

// The host's, where the device has memory of its own. `staged`: of the weights on their way.
absl::Status ReserveHost(const v1::Load& load, uint64_t bytes, uint64_t staged,
                         const LoadContext& context) {
  if (context.reserve_host_memory == nullptr) {
    return absl::OkStatus();
  }
  const uint64_t free = context.reserve_host_memory(bytes + staged);
  if (bytes + staged <= free) {
    return absl::OkStatus();
  }
  return Error(absl::StatusCode::kResourceExhausted, "HOST_MEMORY_LIMIT",
               LayersOfLoad(load) + " need " + FormatSize(staged) +
                   " of the host's memory while they are packed for the device, and " +
                   FormatSize(bytes) + " once loaded, and " + FormatSize(free) +
                   " of --host-memory are free")
      .Limit("host_memory_bytes=" + std::to_string(free))
      .Hint("raise --host-memory of this worker, or give it fewer or other layers with --layers");
}

}  // namespace

std::string KeyOfLayer(const v1::Load& load) {
  std::vector<std::string> tensors;
  for (const v1::TensorBlob& tensor : load.tensors()) {
    tensors.push_back(tensor.sha256());
  }
  return LayerWeightsKey(
      ClassOfLayers(load.numerics_class(), load.first_layer(), load.last_layer()),
      load.stage() == 0, load.stage() + 1 == load.stage_count(), std::move(tensors));
}

namespace {

// Has the cache remember of each layer of a stage what its next load reads.
void RecordLayers(const v1::Load& load, const StageRequest& request, const PackedFiles& packed,
                  KeptLayers* layers) {
  const StageSpec& spec = request.spec;
  std::map<std::string_view, const Blob*> blobs;
  for (const BlobTensor& tensor : request.tensors) {
    blobs[tensor.name] = &tensor.blob;
  }
  const auto has = [&](const std::string& name) { return blobs.contains(name); };
  for (uint32_t layer = spec.first_layer; layer <= spec.last_layer; ++layer) {
    const bool embeds = spec.embeds && layer == spec.first_layer;
    const bool heads = spec.heads && layer == spec.last_layer;
    std::set<std::string> digests;
    KeptLayer kept;
    for (const StageTensor& need : TensorsOf(spec.model, layer, layer, embeds, heads, has)) {
      const auto it = blobs.find(need.name);
      if (it != blobs.end() && digests.insert(it->second->sha256).second &&
          !packed.sources().contains(it->second->sha256)) {
        kept.blobs.push_back(*it->second);
      }
    }
    kept.packed = packed.FilesOf(digests);
    layers->Record(LayerWeightsKey(ClassOfLayers(load.numerics_class(), layer, layer), embeds,
                                   heads, {digests.begin(), digests.end()}),
                   std::move(kept));
  }
}

}  // namespace

absl::StatusOr<LoadedStage> LoadStage(const v1::Load& load, const LoadContext& context,
                                      LoadCounters* counters, Cancellation* cancel) {
  ASSIGN_OR_RETURN(StageRequest request, CheckLoad(load, *context.backend));
  RETURN_IF_ERROR(ReserveStage(load, request, context));
  RETURN_IF_ERROR(ReserveHost(load, request.host_bytes, request.staged_bytes, context));
  const auto fetch = [&](const std::vector<Blob>& blobs) {
    return context.fetcher->Fetch(blobs, context.client, &counters->fetch, cancel, context.log);
  };
  // The rotary tables first: with them the backend can say whether it supports all this.
  ASSIGN_OR_RETURN(const std::shared_ptr<const BlobSet> tables, fetch({request.rotary}));
  ASSIGN_OR_RETURN(const std::unique_ptr<MappedBlob> rotary,
                   tables->Find(request.rotary.sha256)->Map());
  request.spec.rotary = {reinterpret_cast<const float*>(rotary->data()),
                         rotary->bytes() / sizeof(float)};
  RETURN_IF_ERROR(context.backend->Supports(request.spec));
  const MappedWeights mapped(request.tensors, fetch);
  const StoredTensors weights(request.needs, mapped);
  // Nobody waits for a stage beside another; once it serves nothing is to come to large pages under
  // its steps.
  PackedFiles packed(context.cache, context.log, /*maps=*/!load.beside());
  LoadedStage stage;
  const auto progress = [&](uint64_t done, uint64_t total) {
    counters->packed_bytes = done;
    counters->packing_bytes = total;
    counters->packing = true;
  };
  PackedStore* const store = context.keep_packed ? &packed : nullptr;
  const absl::Status loaded = [&]() -> absl::Status {
    if (request.place.has_value()) {
      ASSIGN_OR_RETURN(stage.rank, context.backend->LoadRank(request.spec, *request.place, weights,
                                                             store, progress));
    } else {
      ASSIGN_OR_RETURN(stage.shard, context.backend->Load(request.spec, weights, store, progress));
    }
    return absl::OkStatus();
  }();
  counters->packed_made = packed.written();
  RETURN_IF_ERROR(loaded);
  counters->kept_bytes = packed.read_bytes();
  std::vector<Blob> wanted = packed.files();
  for (const BlobTensor& tensor : request.tensors) {
    if (!packed.sources().contains(tensor.blob.sha256)) {
      wanted.push_back(tensor.blob);
    }
  }
  stage.pin = std::make_unique<CachePin>(context.cache, std::move(wanted));
  stage.packed_status = packed.write_status();
  // What is packed of a rank is of its shares alone.
  if (context.keep_packed && context.layers != nullptr && stage.packed_status.ok() &&
      !request.place.has_value()) {
    RecordLayers(load, request, packed, context.layers);
  }
  // What it really took, scratch and all.
  const uint64_t taken =
      stage.rank != nullptr ? stage.rank->MemoryBytes() : stage.shard->MemoryBytes();
  RETURN_IF_ERROR(ReserveMemory(load, taken, FormatSize(taken) + " once packed", context));
  RETURN_IF_ERROR(ReserveHost(load, request.host_bytes, 0, context));
  stage.spec = std::move(request.spec);
  stage.spec.rotary = {};
  if (cancel->cancelled()) {
    return Error(absl::StatusCode::kCancelled, "CANCELLED", "loading was cancelled");
  }
  return stage;
}

absl::StatusOr<StageSpec> ResizeStage(const v1::Load& load, const LoadContext& context,
                                      Shard* shard) {
  const auto resize = [&]() -> absl::StatusOr<StageSpec> {
    ASSIGN_OR_RETURN(StageRequest request, CheckLoad(load, *context.backend));
    const std::string what = FormatSize(request.kv_bytes) + " for KV beside their weights";
    RETURN_IF_ERROR(ReserveStage(load, request, context));
    RETURN_IF_ERROR(ReserveHost(load, request.host_bytes, 0, context));
    RETURN_IF_ERROR(shard->ResizeKv(request.spec.kv_pages));
    RETURN_IF_ERROR(ReserveMemory(load, shard->MemoryBytes(), what, context));
    return std::move(request.spec);
  };
  absl::StatusOr<StageSpec> spec = resize();
  if (!spec.ok()) {
    const std::vector<uint64_t> none(static_cast<size_t>(load.kv_pages_size()), 0);
    shard->ResizeKv(none).IgnoreError();
  }
  return spec;
}

}  // namespace strata
