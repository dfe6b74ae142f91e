#include "coordinator/service/request/model_runtime.h"

#include <algorithm>
#include <utility>

#include "common/checkpoint/checkpoint.h"
#include "common/checkpoint/generation_config.h"
#include "common/footprint/footprint.h"
#include "common/footprint/rank_footprint.h"
#include "common/model/rank_outputs.h"
#include "common/status.h"
#include "coordinator/registry/tokenizer_file.h"
#include "coordinator/service/request/chat_prompt.h"
#include "text/tokenizer/gguf_tokenizer.h"
#include "text/tokenizer/sentencepiece.h"
#include "text/tokenizer/tiktoken.h"
#include "text/tokenizer/tokenizer_config.h"

namespace strata {
namespace {

// Texts up to this are tokenized whole: that is quick, and errors then say how long they are.
constexpr size_t kShortTextBytes = 16 * 1024;

}  // namespace

std::vector<v1::TensorBlob> ModelRuntime::StageTensors(uint32_t first_layer, uint32_t last_layer,
                                                       bool embeds, bool heads) const {
  std::vector<v1::TensorBlob> blobs;
  for (const StageTensor& tensor :
       TensorsOf(spec(), first_layer, last_layer, embeds, heads, manifest->Exists())) {
    const ManifestTensor* found = manifest->FindTensor(tensor.name);
    if (found == nullptr) {
      continue;  // Registration refuses a checkpoint without it.
    }
    v1::TensorBlob& blob = blobs.emplace_back();
    blob.set_name(found->name);
    blob.set_dtype(DtypeName(found->dtype));
    blob.mutable_shape()->Add(found->shape.begin(), found->shape.end());
    blob.set_sha256(found->sha256);
    blob.set_bytes(found->bytes);
  }
  return blobs;
}

absl::StatusOr<std::vector<uint32_t>> ModelRuntime::EncodePrompt(const std::string& text,
                                                                 bool add_special_tokens,
                                                                 const LimitFn& limit) const {
  if (tokenizer == nullptr || limit == nullptr || text.size() <= kShortTextBytes) {
    return Encode(text, add_special_tokens);
  }
  ASSIGN_OR_RETURN(const PromptLimit longest, limit());
  if (longest.tokens == 0) {
    return Encode(text, add_special_tokens);
  }
  const size_t per_id = tokenizer->max_bytes_per_id();
  if (per_id > 0 && text.size() / per_id > longest.tokens) {
    return longest.refusal;
  }
  ASSIGN_OR_RETURN(std::vector<uint32_t> ids,
                   tokenizer->EncodeUpTo(text, add_special_tokens, longest.tokens));
  if (ids.size() > longest.tokens) {
    return longest.refusal;
  }
  return ids;
}

absl::StatusOr<std::vector<uint32_t>> ModelRuntime::Encode(const std::string& text,
                                                           bool add_special_tokens) const {
  if (tokenizer == nullptr) {
    return tokenizer_problem;
  }
  return tokenizer->Encode(text, add_special_tokens);
}

absl::StatusOr<std::vector<uint32_t>> ModelRuntime::EncodeAny(const std::string& text,
                                                              bool add_special_tokens) const {
  const size_t per_id = tokenizer == nullptr ? 0 : tokenizer->max_bytes_per_id();
  if (per_id > 0 && text.size() > kShortTextBytes && text.size() / per_id > spec().context) {
    return Error(absl::StatusCode::kInvalidArgument, "CONTEXT_EXCEEDED",
                 "a text of " + std::to_string(text.size()) + " bytes has more tokens than the " +
                     std::to_string(spec().context) + " of model '" + name + "'")
        .Limit("context_tokens=" + std::to_string(spec().context))
        .Hint("send its parts, one after another")
        .Fact("limit_tokens", spec().context);
  }
  return Encode(text, add_special_tokens);
}

namespace {

// Of GGUF files, and from before others were read: these two, "" where there is none.
std::vector<std::pair<std::string, std::string>> TemplateTokens(const ModelManifest& manifest) {
  if (!manifest.special_tokens.empty()) {
    return manifest.special_tokens;
  }
  return {{"bos_token", manifest.bos_token}, {"eos_token", manifest.eos_token}};
}

}  // namespace

absl::StatusOr<std::string> ModelRuntime::RenderChat(const v1::ChatInput& chat, int64_t now) const {
  if (chat_template == nullptr) {
    return template_problem;
  }
  return RenderChatPrompt(*chat_template, {TemplateTokens(*manifest), arguments_as_text}, chat,
                          now);
}

namespace {

// Products of the projections that an attention branch begins with, for one token; with latent
// vectors those of all heads with them too.
double InputProducts(const AttentionSpec& a, double hidden) {
  const LatentSpec& latent = a.latent;
  if (latent.rank == 0) {
    return hidden * (a.heads + 2.0 * a.kv_heads) * a.head_dim;
  }
  const double queries = double{1} * a.heads * a.head_dim;
  const double projected = latent.query_rank == 0
                               ? hidden * queries
                               : (hidden + queries) * static_cast<double>(latent.query_rank);
  return projected + hidden * latent.kept() +
         1.0 * a.heads * latent.rank * (latent.nope_dim + latent.value_dim);
}

}  // namespace

namespace {

// Weights of one rank of a stage over these shares, on a CPU.
PlannerWeights AccountRank(const ModelManifest& manifest, v1::Quantize quantize,
                           const std::vector<OutputRange>& shares, size_t rank) {
  const RankOutputs outputs = SplitOutputs(manifest.spec, shares)[rank];
  const auto account = [&](bool embeds, bool heads) {
    return AccountWeights(
        manifest, quantize,
        RankFootprint(CpuFootprint(), manifest.spec,
                      {.outputs = outputs, .first = rank == 0, .embeds = embeds, .heads = heads}));
  };
  WeightAccount ends = account(/*embeds=*/false, /*heads=*/true);
  return {.layer_bytes = std::move(ends.layer_bytes),
          .layer_read_bytes = std::move(ends.layer_read_bytes),
          .embed_bytes = rank == 0 ? account(/*embeds=*/true, /*heads=*/false).embed_bytes : 0,
          .head_bytes = ends.head_bytes};
}

}  // namespace

PlannerModel ModelRuntime::ForPlanner(const v1::LoadOptions& options) const {
  const WeightAccount account = AccountWeights(*manifest, options.quantize());
  PlannerModel model;
  model.spec = spec();
  model.layer_bytes = account.layer_bytes;
  model.layer_read_bytes = account.layer_read_bytes;
  model.layer_source_bytes = account.layer_source_bytes;
  model.end_source_bytes = account.end_source_bytes;
  for (const LayerSpec& layer : spec().layers) {
    const AttentionSpec& a = layer.attention;
    const double hidden = spec().hidden;
    const double out = double{hidden} * static_cast<double>(a.OutputInputs());
    const MlpSpec& mlp = layer.mlp;
    const double router = double{hidden} * mlp.experts;
    model.layer_flops.push_back(
        2 * (InputProducts(a, hidden) + out + router +
             (uint64_t{mlp.active()} * mlp.ffn + mlp.shared_ffn) * 3.0 * hidden));
  }
  model.embed_bytes = account.embed_bytes;
  model.head_bytes = account.head_bytes;
  model.head_flops = 2.0 * spec().hidden * spec().vocab;
  model.kv_element_bytes = options.kv_dtype() == v1::KV_DTYPE_F32 ? 4 : 2;
  model.weight_format = account.layer_format;
  model.head_format = account.head_format;
  model.activations = options.activations() == v1::ACTIVATIONS_INT8 ? "int8" : "f32";
  model.kv_format = options.kv_dtype() == v1::KV_DTYPE_F32 ? "f32" : "f16";
  WeightAccount mlx = AccountWeights(*manifest, options.quantize(), MlxFootprint());
  model.on_mlx = PlannerWeights{.layer_bytes = std::move(mlx.layer_bytes),
                                .layer_read_bytes = std::move(mlx.layer_read_bytes),
                                .embed_bytes = mlx.embed_bytes,
                                .head_bytes = mlx.head_bytes};
  model.of_rank = [manifest = manifest, quantize = options.quantize()](
                      const std::vector<OutputRange>& shares, size_t rank) {
    return AccountRank(*manifest, quantize, shares, rank);
  };
  return model;
}

namespace {

absl::StatusOr<std::unique_ptr<Tokenizer>> ReadTokenizer(const ModelManifest& manifest) {
  std::vector<std::string> names;
  for (const ManifestFile& file : manifest.files) {
    names.push_back(file.name);
  }
  const std::string name = TokenizerFileOf(names);
  const auto read = [&](const char* beside) -> absl::StatusOr<std::string> {
    return manifest.FindFile(beside) != nullptr ? ReadManifestFile(manifest, beside) : "";
  };
  if (!IsTiktokenFile(name) && name != kSentencePieceFile) {
    ASSIGN_OR_RETURN(const std::string gguf, FindManifestGguf(manifest));
    if (!gguf.empty()) {
      return ReadGgufTokenizer(gguf);  // Which says it all.
    }
    ASSIGN_OR_RETURN(const std::string json, ReadManifestFile(manifest, "tokenizer.json"));
    ASSIGN_OR_RETURN(const FilesBesideTokenizer beside, ReadFilesBesideTokenizer(read));
    return ParseTokenizer(json, beside);
  }
  ASSIGN_OR_RETURN(const std::string content, ReadManifestFile(manifest, name));
  ASSIGN_OR_RETURN(const std::string config, read("tokenizer_config.json"));
  if (IsTiktokenFile(name)) {
    return ParseTiktoken(content, name, config);
  }
  ASSIGN_OR_RETURN(const std::string added, read("added_tokens.json"));
  return ParseSentencePiece(content, config, added);
}

}  // namespace

absl::StatusOr<std::shared_ptr<const ModelRuntime>> MakeModelRuntime(
    std::string name, std::shared_ptr<const ModelManifest> manifest) {
  auto runtime = std::make_shared<ModelRuntime>();
  runtime->name = std::move(name);
  runtime->manifest = std::move(manifest);
  const ModelManifest& m = *runtime->manifest;
  ASSIGN_OR_RETURN(runtime->defaults, ParseGenerationDefaults(m.generation_config_json));
  runtime->account = AccountWeights(m);
  runtime->tokenizer_problem =
      Error(absl::StatusCode::kFailedPrecondition, "NO_TOKENIZER",
            "model '" + runtime->name + "' has no tokenizer and takes token ids only")
          .Hint(
              "send token ids (--token-ids), or add tokenizer.json to its folder and "
              "register it again");
  if (m.has_tokenizer) {
    auto tokenizer = ReadTokenizer(m);
    if (tokenizer.ok()) {
      runtime->tokenizer = *std::move(tokenizer);
    } else {
      runtime->tokenizer_problem = Annotate(
          tokenizer.status(), "the tokenizer of model '" + runtime->name + "' cannot be used");
    }
  }
  runtime->template_problem =
      Error(absl::StatusCode::kFailedPrecondition, "NO_CHAT_TEMPLATE",
            "model '" + runtime->name + "' has no chat template")
          .Hint(runtime->tokenizer != nullptr
                    ? "`strata generate " + runtime->name + " PROMPT` takes a whole prompt"
                    : "it has no tokenizer either: `strata generate " + runtime->name +
                          " --token-ids IDS` takes token ids");
  if (!m.chat_template.empty()) {
    auto parsed = ParseChatTemplate(m.chat_template);
    if (parsed.ok()) {
      runtime->chat_template = *std::move(parsed);
      runtime->arguments_as_text = WantsArgumentsAsText(*runtime->chat_template);
    } else {
      runtime->template_problem = Annotate(
          parsed.status(), "the chat template of model '" + runtime->name + "' cannot be used");
    }
  }
  return runtime;
}

v1::Model DescribeModel(const ModelRuntime& model) {
  const ModelManifest& m = *model.manifest;
  const WeightAccount account = model.account.has_value() ? *model.account : AccountWeights(m);
  v1::Model out;
  out.set_name(model.name);
  out.set_family(m.spec.family);
  out.set_digest(m.weights_digest);
  out.set_path(m.Source());
  out.set_weight_bytes(account.total_bytes);
  out.set_layers(static_cast<uint32_t>(m.spec.layers.size()));
  out.set_hidden_size(m.spec.hidden);
  out.set_vocab_size(m.spec.vocab);
  out.set_context(m.spec.context);
  out.set_dtype(account.layer_format);
  out.set_has_tokenizer(model.tokenizer != nullptr);
  out.set_has_chat_template(model.chat_template != nullptr);
  out.set_kv_bytes_per_token(TotalKvBytesPerToken(m.spec, 2));
  for (uint32_t group = 0; group < m.spec.kv_groups.size(); ++group) {
    const auto layers = std::count_if(
        m.spec.layers.begin(), m.spec.layers.end(),
        [group](const LayerSpec& layer) { return layer.attention.kv_group == group; });
    if (m.spec.kv_groups[group].kind == KvKind::kWindow) {
      out.add_notes(std::to_string(layers) + " of " + std::to_string(m.spec.layers.size()) +
                    " layers keep only the KV of their window of " +
                    std::to_string(m.spec.kv_groups[group].window) + " tokens");
    }
  }
  for (const std::string& note : m.notes) {
    out.add_notes(note);
  }
  return out;
}

}  // namespace strata
