#include "tests/worker/backend/models/made_up_model.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <numeric>
#include <utility>

#include "common/check.h"
#include "common/checkpoint/checkpoint.h"
#include "common/model/half.h"
#include "tests/worker/backend/models/half_bits.h"

namespace strata::testing {
namespace {

std::string LayerName(uint32_t layer, const std::string& name) {
  return "model.layers." + std::to_string(layer) + "." + name;
}

ModelSpec MakeSpec(const MadeUpShape& shape) {
  ModelSpec spec;
  spec.family = "llama";
  spec.hidden = shape.hidden;
  spec.vocab = shape.vocab;
  spec.context = shape.context;
  spec.tied_head = shape.tied;
  spec.final_norm = shape.norm;
  LayerSpec layer;
  layer.norm = shape.norm;
  layer.attention.heads = shape.heads;
  layer.attention.kv_heads = shape.kv_heads;
  layer.attention.head_dim = shape.head_dim;
  layer.attention.scale = 1.0f / std::sqrt(static_cast<float>(shape.head_dim));
  layer.attention.soft_cap = shape.soft_cap;
  layer.attention.rope.rotary_dim = shape.rotary_dim;
  if (shape.latent.rank != 0) {
    layer.attention.latent = shape.latent;
    layer.attention.kv_heads = 1;
    layer.attention.head_dim = shape.latent.nope_dim + shape.latent.rope_dim;
    layer.attention.rope.rotary_dim = shape.latent.rope_dim;
  }
  layer.attention.qkv_bias = shape.biases;
  layer.attention.out_bias = shape.biases;
  layer.mlp.ffn = shape.ffn;
  layer.mlp.bias = shape.biases;
  layer.attention.sinks = shape.sinks;
  layer.mlp.activation = shape.activation;
  layer.mlp.clamp = shape.activation == ActivationKind::kClampedSilu ? 0.5f : 0.0f;
  layer.mlp.gain = shape.activation == ActivationKind::kClampedSilu ? 1.25f : 0.0f;
  spec.final_soft_cap = shape.final_soft_cap;
  const std::vector<uint32_t> windows =
      shape.windows.empty() ? std::vector<uint32_t>{0} : shape.windows;
  for (uint32_t i = 0; i < shape.layers; ++i) {
    const uint32_t window = windows[i % windows.size()];
    const KvKind all = shape.latent.rank != 0 ? KvKind::kMla : KvKind::kFull;
    const KvGroupSpec group{window == 0 ? all : KvKind::kWindow, window};
    const auto found = std::find(spec.kv_groups.begin(), spec.kv_groups.end(), group);
    layer.attention.kv_group = static_cast<uint32_t>(found - spec.kv_groups.begin());
    if (found == spec.kv_groups.end()) {
      spec.kv_groups.push_back(group);
    }
    layer.mlp.experts = i == 0 ? 0 : shape.experts;
    layer.mlp.router = shape.router;
    layer.mlp.router.bias = shape.biases;
    spec.layers.push_back(layer);
  }
  return spec;
}

double Capped(double x, double cap) { return cap == 0 ? x : cap * std::tanh(x / cap); }

// The product of gate and up.
double Gated(double x, double up, const MlpSpec& mlp) {
  if (mlp.activation == ActivationKind::kSilu) {
    return x / (1.0 + std::exp(-x)) * up;
  }
  if (mlp.activation == ActivationKind::kClampedSilu) {
    const double limit = mlp.clamp;
    x = std::min(x, limit);
    return x / (1.0 + std::exp(-mlp.gain * x)) * (std::clamp(up, -limit, limit) + 1);
  }
  const double u = std::sqrt(2.0 / std::acos(-1.0)) * (x + 0.044715 * x * x * x);
  return 0.5 * x * (1.0 + std::tanh(u)) * up;
}

}  // namespace

MadeUpModel::MadeUpModel(const MadeUpShape& shape) : spec_(MakeSpec(shape)), state_(shape.seed) {
  const float norm_center = shape.norm == NormKind::kRms ? 1.0f : 0.0f;
  for (const StageTensor& tensor :
       TensorsOf(spec_, 0, static_cast<uint32_t>(spec_.layers.size()) - 1, true, true)) {
    if (tensor.shape.size() == 1) {
      const bool norm = tensor.name.find("norm") != std::string::npos;
      Add(tensor.name, tensor.shape, shape.dtype, 0.2f, norm ? norm_center : 0.0f);
    } else {
      const float scale = tensor.name.find("embed") != std::string::npos
                              ? 1.0f
                              : 1.7f / std::sqrt(static_cast<float>(tensor.shape[1]));
      Add(tensor.name, tensor.shape, shape.dtype, scale);
    }
  }
}

void MadeUpModel::Add(const std::string& name, std::vector<uint64_t> shape, Dtype dtype,
                      float scale, float center) {
  Tensor& tensor = tensors_[name];
  size_t count = 1;
  for (const uint64_t n : shape) {
    count *= n;
  }
  for (size_t i = 0; i < count; ++i) {
    state_ = state_ * 1664525u + 1013904223u;
    float x = center + scale * (static_cast<float>(state_ >> 8) * 0x1p-23f - 1.0f);
    if (dtype == Dtype::kF32) {
      tensor.bytes.append(reinterpret_cast<const char*>(&x), sizeof(x));
    } else {
      const uint16_t bits = dtype == Dtype::kF16
                                ? HalfBitsOf(x)
                                : static_cast<uint16_t>(std::bit_cast<uint32_t>(x) >> 16);
      const auto* const stored = reinterpret_cast<const uint8_t*>(&bits);
      x = dtype == Dtype::kF16 ? HalfAt(stored) : Bfloat16At(stored);
      tensor.bytes.append(reinterpret_cast<const char*>(&bits), sizeof(bits));
    }
    tensor.values.push_back(x);
  }
  tensor.view =
      TensorView{dtype, std::move(shape), reinterpret_cast<const uint8_t*>(tensor.bytes.data()),
                 tensor.bytes.size()};
}

absl::StatusOr<TensorView> MadeUpModel::Find(std::string_view name) const {
  const auto found = tensors_.find(std::string(name));
  if (found == tensors_.end()) {
    return absl::NotFoundError("no tensor " + std::string(name));
  }
  return found->second.view;
}

MadeUpModel::Rows MadeUpModel::Linear(const Rows& x, const std::string& name) const {
  const std::vector<double>& w = Values(name + ".weight");
  const auto bias = tensors_.find(name + ".bias");
  const size_t inputs = x[0].size();
  Rows out;
  for (const std::vector<double>& row : x) {
    std::vector<double>& y = out.emplace_back(w.size() / inputs, 0.0);
    for (size_t n = 0; n < y.size(); ++n) {
      y[n] = bias == tensors_.end() ? 0.0 : bias->second.values[n];
      for (size_t k = 0; k < inputs; ++k) {
        y[n] += row[k] * w[n * inputs + k];
      }
    }
  }
  return out;
}

MadeUpModel::Rows MadeUpModel::Norm(const Rows& x, const std::string& name, NormKind kind,
                                    float eps) const {
  const std::vector<double>& w = Values(name + ".weight");
  Rows out = x;
  for (std::vector<double>& row : out) {
    double squares = 0;
    for (const double v : row) {
      squares += v * v;
    }
    const double factor = 1.0 / std::sqrt(squares / static_cast<double>(row.size()) + eps);
    for (size_t k = 0; k < row.size(); ++k) {
      row[k] *= factor * (w[k] + (kind == NormKind::kRmsOnePlus ? 1.0 : 0.0));
    }
  }
  return out;
}

void MadeUpModel::Rotate(const AttentionSpec& attention, Rows* rows) const {
  const RopeSpec& rope = attention.rope;
  const uint32_t half = rope.rotary_dim / 2;
  for (size_t row = 0; row < rows->size(); ++row) {
    std::vector<double>& values = (*rows)[row];
    for (size_t head = 0; head < values.size(); head += attention.head_dim) {
      for (uint32_t i = 0; i < half; ++i) {
        const double angle =
            static_cast<double>(row) * std::pow(rope.theta, -2.0 * i / rope.rotary_dim);
        double& left = values[head + i];
        double& right = values[head + i + half];
        const double turned = left * std::cos(angle) - right * std::sin(angle);
        right = right * std::cos(angle) + left * std::sin(angle);
        left = turned;
      }
    }
  }
}

MadeUpModel::Rows MadeUpModel::LatentAttention(const Rows& x, uint32_t layer) const {
  const AttentionSpec& a = spec_.layers[layer].attention;
  const LatentSpec& latent = a.latent;
  const auto name = [&](const char* what) {
    return LayerName(layer, std::string("self_attn.") + what);
  };
  const Rows q = latent.query_rank == 0
                     ? Linear(x, name("q_proj"))
                     : Linear(Norm(Linear(x, name("q_a_proj")), name("q_a_layernorm"),
                                   NormKind::kRms, latent.norm_eps),
                              name("q_b_proj"));
  Rows vectors = Linear(x, name("kv_a_proj_with_mqa"));
  Rows rotating;  // The keys' part that all heads share.
  for (std::vector<double>& row : vectors) {
    rotating.emplace_back(row.begin() + latent.rank, row.end());
    row.resize(latent.rank);
  }
  const Rows kv = Linear(Norm(vectors, name("kv_a_layernorm"), NormKind::kRms, latent.norm_eps),
                         name("kv_b_proj"));
  const auto turned = [&](const double* values, size_t position) {
    std::vector<double> out;
    for (uint32_t i = 0; i < latent.rope_dim / 2; ++i) {
      const double angle =
          static_cast<double>(position) * std::pow(a.rope.theta, -2.0 * i / latent.rope_dim);
      const double one = values[2 * i];
      const double other = values[2 * i + 1];
      out.push_back(one * std::cos(angle) - other * std::sin(angle));
      out.push_back(other * std::cos(angle) + one * std::sin(angle));
    }
    return out;
  };
  const size_t head_rows = latent.nope_dim + latent.value_dim;
  Rows out(x.size(), std::vector<double>(size_t{a.heads} * latent.value_dim, 0.0));
  for (size_t row = 0; row < x.size(); ++row) {
    for (size_t head = 0; head < a.heads; ++head) {
      const double* const query = &q[row][head * a.head_dim];
      const std::vector<double> turned_query = turned(query + latent.nope_dim, row);
      std::vector<double> weights(row + 1);
      double sum = 0;
      for (size_t key = 0; key <= row; ++key) {
        const std::vector<double> turned_key = turned(rotating[key].data(), key);
        double dot = 0;
        for (uint32_t d = 0; d < latent.nope_dim; ++d) {
          dot += query[d] * kv[key][head * head_rows + d];
        }
        for (uint32_t d = 0; d < latent.rope_dim; ++d) {
          dot += turned_query[d] * turned_key[d];
        }
        weights[key] = std::exp(dot * a.scale);
        sum += weights[key];
      }
      for (size_t key = 0; key <= row; ++key) {
        for (uint32_t d = 0; d < latent.value_dim; ++d) {
          out[row][head * latent.value_dim + d] +=
              weights[key] / sum * kv[key][head * head_rows + latent.nope_dim + d];
        }
      }
    }
  }
  return Linear(out, name("o_proj"));
}

MadeUpModel::Rows MadeUpModel::Attention(const Rows& x, uint32_t layer) const {
  const AttentionSpec& a = spec_.layers[layer].attention;
  if (a.latent.rank != 0) {
    return LatentAttention(x, layer);
  }
  Rows q = Linear(x, LayerName(layer, "self_attn.q_proj"));
  Rows k = Linear(x, LayerName(layer, "self_attn.k_proj"));
  const Rows v = Linear(x, LayerName(layer, "self_attn.v_proj"));
  Rotate(a, &q);
  Rotate(a, &k);
  const uint32_t window = spec_.kv_groups[a.kv_group].window;
  Rows out(x.size(), std::vector<double>(size_t{a.heads} * a.head_dim, 0.0));
  const uint32_t group = a.heads / a.kv_heads;
  for (size_t row = 0; row < x.size(); ++row) {
    for (uint32_t head = 0; head < a.heads; ++head) {
      const size_t kv = size_t{head / group} * a.head_dim;
      std::vector<double> weights(row + 1);
      double sum = a.sinks ? std::exp(Values(LayerName(layer, "self_attn.sinks"))[head]) : 0;
      const size_t first = window == 0 || row < window ? 0 : row + 1 - window;
      for (size_t key = first; key <= row; ++key) {
        double dot = 0;
        for (uint32_t d = 0; d < a.head_dim; ++d) {
          dot += q[row][head * a.head_dim + d] * k[key][kv + d];
        }
        weights[key] = std::exp(Capped(dot * a.scale, a.soft_cap));
        sum += weights[key];
      }
      for (size_t key = first; key <= row; ++key) {
        for (uint32_t d = 0; d < a.head_dim; ++d) {
          out[row][head * a.head_dim + d] += weights[key] / sum * v[key][kv + d];
        }
      }
    }
  }
  return Linear(out, LayerName(layer, "self_attn.o_proj"));
}

MadeUpModel::Rows MadeUpModel::GatedMlp(const Rows& x, const ExpertPaths& names,
                                        const MlpSpec& mlp) const {
  Rows gate = Linear(x, names.gate);
  const Rows up = Linear(x, names.up);
  for (size_t row = 0; row < gate.size(); ++row) {
    for (size_t i = 0; i < gate[row].size(); ++i) {
      gate[row][i] = Gated(gate[row][i], up[row][i], mlp);
    }
  }
  return Linear(gate, names.down);
}

MadeUpModel::Rows MadeUpModel::Mlp(const Rows& x, uint32_t layer) const {
  const MlpSpec& mlp = spec_.layers[layer].mlp;
  if (mlp.experts != 0) {
    return Mixture(x, layer);
  }
  return GatedMlp(x,
                  {LayerName(layer, "mlp.gate_proj"), LayerName(layer, "mlp.up_proj"),
                   LayerName(layer, "mlp.down_proj")},
                  mlp);
}

MadeUpModel::Rows MadeUpModel::Mixture(const Rows& x, uint32_t layer) const {
  const MlpSpec& mlp = spec_.layers[layer].mlp;
  const std::string prefix = LayerName(layer, "");
  const Rows logits = Linear(x, RouterPath(mlp.expert_names, prefix));
  Rows out;
  for (size_t row = 0; row < x.size(); ++row) {
    std::vector<uint32_t> order(mlp.experts);
    std::iota(order.begin(), order.end(), 0u);
    std::stable_sort(order.begin(), order.end(),
                     [&](uint32_t a, uint32_t b) { return logits[row][a] > logits[row][b]; });
    double all = 0;
    double chosen = 0;
    for (size_t i = 0; i < order.size(); ++i) {
      all += std::exp(logits[row][order[i]]);
      chosen += i < mlp.router.used ? std::exp(logits[row][order[i]]) : 0;
    }
    const bool of_chosen =
        mlp.router.renormalize || mlp.router.scores == RouterScores::kSoftmaxOfChosen;
    std::vector<double>& sum = out.emplace_back(x[row].size(), 0.0);
    for (size_t i = 0; i < mlp.router.used; ++i) {
      const Rows one = GatedMlp({x[row]}, ExpertPathsOf(mlp.expert_names, prefix, order[i]), mlp);
      const double weight = std::exp(logits[row][order[i]]) / (of_chosen ? chosen : all);
      for (size_t k = 0; k < sum.size(); ++k) {
        sum[k] += weight * one[0][k];
      }
    }
  }
  return out;
}

std::vector<double> MadeUpModel::PlainLogits(std::span<const uint32_t> ids) const {
  const auto add = [](Rows* to, const Rows& from) {
    for (size_t row = 0; row < to->size(); ++row) {
      for (size_t i = 0; i < from[row].size(); ++i) {
        (*to)[row][i] += from[row][i];
      }
    }
  };
  const std::vector<double>& embedding = Values("model.embed_tokens.weight");
  Rows x;
  for (const uint32_t id : ids) {
    const auto first = embedding.begin() + size_t{id} * spec_.hidden;
    x.emplace_back(first, first + spec_.hidden);
  }
  for (uint32_t layer = 0; layer < spec_.layers.size(); ++layer) {
    const LayerSpec& spec = spec_.layers[layer];
    add(&x,
        Attention(Norm(x, LayerName(layer, "input_layernorm"), spec.norm, spec.norm_eps), layer));
    add(&x, Mlp(Norm(x, LayerName(layer, "post_attention_layernorm"), spec.norm, spec.norm_eps),
                layer));
  }
  const Rows normed = Norm(x, "model.norm", spec_.final_norm, spec_.final_norm_eps);
  const Rows logits = Linear(normed, spec_.tied_head ? "model.embed_tokens" : "lm_head");
  std::vector<double> all;
  for (const std::vector<double>& row : logits) {
    for (const double logit : row) {
      all.push_back(Capped(logit, spec_.final_soft_cap));
    }
  }
  return all;
}

std::vector<MadeUpShape> MadeUpShapes() {
  return {
      {},
      {.biases = true, .dtype = Dtype::kF16, .seed = 2},
      {.hidden = 17,
       .heads = 3,
       .kv_heads = 3,
       .head_dim = 10,
       .rotary_dim = 4,
       .ffn = 33,
       .vocab = 5,
       .tied = true,
       .dtype = Dtype::kF32,
       .seed = 3},
      {.layers = 3,
       .hidden = 64,
       .heads = 8,
       .kv_heads = 1,
       .head_dim = 16,
       .rotary_dim = 16,
       .ffn = 1,
       .vocab = 64,
       .tied = true,
       .norm = NormKind::kRmsOnePlus,
       .seed = 4},
      {.layers = 1,
       .hidden = 1,
       .heads = 1,
       .kv_heads = 1,
       .head_dim = 2,
       .rotary_dim = 2,
       .ffn = 1,
       .vocab = 1,
       .seed = 5},
      {.layers = 4,
       .norm = NormKind::kRmsOnePlus,
       .seed = 6,
       .windows = {20, 0},
       .soft_cap = 1.5f,
       .final_soft_cap = 3.0f,
       .activation = ActivationKind::kGeluTanh},
      {.layers = 5,
       .hidden = 30,
       .heads = 5,
       .kv_heads = 1,
       .head_dim = 10,
       .rotary_dim = 10,
       .dtype = Dtype::kF16,
       .seed = 7,
       .windows = {1, 15, 16, 17, 1000}},
      {.layers = 3, .seed = 8, .experts = 19, .router = {.used = 5}},
      {.hidden = 33,
       .ffn = 17,
       .norm = NormKind::kRmsOnePlus,
       .dtype = Dtype::kF32,
       .seed = 9,
       .experts = 3,
       .router = {.used = 3, .renormalize = true}},
      {.layers = 4,
       .biases = true,
       .seed = 12,
       .windows = {18, 0},
       .activation = ActivationKind::kClampedSilu,
       .sinks = true,
       .experts = 7,
       .router = {.used = 3, .scores = RouterScores::kSoftmaxOfChosen}},
      {.seed = 10,
       .activation = ActivationKind::kGeluTanh,
       .experts = 40,
       .router = {.used = 1, .scores = RouterScores::kSoftmaxOfChosen}},
      {.heads = 5,
       .seed = 8,
       .latent = {.rank = 16, .nope_dim = 10, .rope_dim = 6, .value_dim = 9}},
      {.layers = 3,
       .hidden = 48,
       .heads = 32,
       .dtype = Dtype::kF16,
       .seed = 9,
       .latent = {.rank = 32, .query_rank = 20, .nope_dim = 24, .rope_dim = 8, .value_dim = 20}},
  };
}

std::vector<uint32_t> SomeIds(uint32_t count, uint32_t vocab) {
  std::vector<uint32_t> ids(count);
  uint32_t state = 7;
  for (uint32_t& id : ids) {
    state = state * 1664525u + 1013904223u;
    id = (state >> 16) % vocab;
  }
  return ids;
}

}  // namespace strata::testing
