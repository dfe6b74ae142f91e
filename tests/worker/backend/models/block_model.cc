#include "tests/worker/backend/models/block_model.h"

#include <cstring>
#include <numeric>

#include "common/model/block_formats.h"
#include "common/random.h"
#include "tests/worker/backend/models/half_bits.h"

namespace strata::testing {
namespace {

const BlockCase kCases[] = {
    {Dtype::kQ8_0, {{0, 8e-4f}}},
    {Dtype::kQ4_0, {{0, -0.012f}}},
    {Dtype::kQ4_1, {{0, 0.012f}, {2, -0.09f}}},
    {Dtype::kQ5_0, {{0, 6e-3f}}},
    {Dtype::kQ5_1, {{0, -6e-3f}, {2, 0.09f}}},
    {Dtype::kQ4_K, {{0, 3e-4f}, {2, 2e-3f}}},
    {Dtype::kQ5_K, {{0, 1.5e-4f}, {2, 2e-3f}}},
    {Dtype::kQ6_K, {{208, 4e-5f}}},
    {Dtype::kQ2_K, {{80, 2.2e-3f}, {82, 3.3e-3f}}},
    {Dtype::kQ3_K, {{108, 8e-4f}}},
    {Dtype::kIQ4_NL, {{0, 8e-4f}}},
    {Dtype::kIQ4_XS, {{0, 2.5e-5f}}},
    {.dtype = Dtype::kMXFP4, .bytes = {{0, 121}}},
    {.dtype = Dtype::kNVFP4, .bytes = {{0, 0x38}, {1, 0xb4}}, .row = 0.0157f},  // 1 and -0.75.
    {.dtype = Dtype::kNF4, .floats = {{0, 0.1f}}},
    {.dtype = Dtype::kFP4, .floats = {{0, -0.1f}}},
    {.dtype = Dtype::kNVFP4BF16, .bytes = {{0, 0x38}, {1, 0xb4}}, .row = 64},
};
constexpr size_t kHeadDim = 32;

void PutScales(const BlockCase& one, char* block) {
  for (const auto& [at, scale] : one.scales) {
    const uint16_t half = HalfBitsOf(scale);
    std::memcpy(block + at, &half, sizeof(half));
  }
  for (const auto& [at, scale] : one.floats) {
    std::memcpy(block + at, &scale, sizeof(scale));
  }
  for (const auto& [at, byte] : one.bytes) {
    block[at] = static_cast<char>(byte);
  }
}

std::string Floats(Dtype dtype, const StageTensor& tensor, const std::string& blocks) {
  const bool pairs = tensor.name.find("q_proj") != std::string::npos ||
                     tensor.name.find("k_proj") != std::string::npos;
  const size_t row_bytes = blocks.size() / tensor.shape[0];
  std::string floats;
  for (size_t row = 0; row < tensor.shape[0]; ++row) {
    const size_t within = row % kHeadDim;
    const size_t from =
        pairs ? row - within + within % (kHeadDim / 2) * 2 + within / (kHeadDim / 2) : row;
    for (size_t part = 0; part < tensor.shape[1] / kBlockPart; ++part) {
      float values[kBlockPart];
      DecodePart(dtype, reinterpret_cast<const uint8_t*>(blocks.data()) + from * row_bytes, part,
                 values);
      floats.append(reinterpret_cast<const char*>(values), sizeof(values));
    }
  }
  return floats;
}

}  // namespace

std::span<const BlockCase> BlockCases() { return kCases; }

BlockModel::BlockModel(const BlockCase& one, bool tied, bool plain, uint32_t experts)
    : made_({.hidden = 256,
             .heads = 8,
             .kv_heads = 2,
             .head_dim = kHeadDim,
             .rotary_dim = kHeadDim,
             .ffn = 512,
             .tied = tied,
             .dtype = Dtype::kF32,
             .experts = experts,
             .router = {.used = 2, .renormalize = true}}),
      spec_(made_.spec()) {
  for (LayerSpec& layer : spec_.layers) {
    layer.attention.qk_rows_in_pairs = !plain;
  }
  for (const StageTensor& tensor :
       TensorsOf(spec_, 0, static_cast<uint32_t>(spec_.layers.size()) - 1, true, true)) {
    if (tensor.shape.size() == 2 && !IsRouter(tensor.name)) {
      Add(one, tensor, plain);
    }
  }
}

absl::StatusOr<TensorView> BlockModel::Find(std::string_view name) const {
  const auto found = views_.find(std::string(name));
  return found == views_.end() ? made_.Find(name) : found->second;
}

void BlockModel::Add(const BlockCase& one, const StageTensor& tensor, bool plain) {
  std::string& bytes = bytes_[tensor.name];
  bytes.resize(TensorBytes(one.dtype, tensor.shape).value());
  uint64_t seed = tensor.name.size();
  if (IsOfExperts(tensor.name)) {  // Of names as long as one another.
    seed = std::accumulate(tensor.name.begin(), tensor.name.end(), uint64_t{0});
  }
  const size_t row_bytes = BlockRowBytes(one.dtype, tensor.shape[1]);
  const size_t blocks = tensor.shape[1] / BlockElements(one.dtype);
  const size_t head_bytes = row_bytes - blocks * BlockBytes(one.dtype);
  uint32_t drawn = 0;
  for (size_t row = 0; row < bytes.size(); row += row_bytes) {
    // A row's number, or that it is not rounded.
    std::memcpy(bytes.data() + row, &one.row, head_bytes);
    drawn += one.row == 0 ? 0 : sizeof(one.row);
    for (size_t at = head_bytes; at < row_bytes; ++at) {
      bytes[row + at] = static_cast<char>(Philox(seed, 5, drawn++) >> 9);
    }
    for (size_t at = head_bytes; at < row_bytes; at += BlockBytes(one.dtype)) {
      PutScales(one, bytes.data() + row + at);
    }
  }
  Dtype dtype = one.dtype;
  if (plain) {
    bytes = Floats(one.dtype, tensor, bytes);
    dtype = Dtype::kF32;
  }
  views_[tensor.name] = {dtype, tensor.shape, reinterpret_cast<const uint8_t*>(bytes.data()),
                         bytes.size()};
}

}  // namespace strata::testing
