#include "tests/common/checkpoint/made_gguf.h"

#include "common/checkpoint/gguf.h"
#include "common/model/block_formats.h"

namespace strata::testing {
namespace {

constexpr size_t kAlignment = 32;

std::string Padded(std::string bytes) {
  bytes.resize((bytes.size() + kAlignment - 1) / kAlignment * kAlignment);
  return bytes;
}

}  // namespace

std::string GgufString(std::string_view text) {
  return LittleEndian<uint64_t>(text.size()) + std::string(text);
}

MadeGguf& MadeGguf::Raw(std::string_view key, uint32_t type, std::string_view bytes) {
  value_bytes_ += GgufString(key) + LittleEndian(type) + std::string(bytes);
  ++values_;
  return *this;
}

MadeGguf& MadeGguf::Uint(std::string_view key, uint32_t value) {
  return Raw(key, 4, LittleEndian(value));
}
MadeGguf& MadeGguf::Float(std::string_view key, float value) {
  return Raw(key, 6, LittleEndian(value));
}
MadeGguf& MadeGguf::Bool(std::string_view key, bool value) {
  return Raw(key, 7, LittleEndian<uint8_t>(value ? 1 : 0));
}
MadeGguf& MadeGguf::String(std::string_view key, std::string_view value) {
  return Raw(key, 8, GgufString(value));
}
MadeGguf& MadeGguf::Strings(std::string_view key, const std::vector<std::string>& values) {
  std::string bytes = LittleEndian<uint32_t>(8) + LittleEndian<uint64_t>(values.size());
  for (const std::string& value : values) {
    bytes += GgufString(value);
  }
  return Raw(key, 9, bytes);
}
MadeGguf& MadeGguf::Floats(std::string_view key, const std::vector<float>& values) {
  std::string bytes = LittleEndian<uint32_t>(6) + LittleEndian<uint64_t>(values.size());
  for (const float value : values) {
    bytes += LittleEndian(value);
  }
  return Raw(key, 9, bytes);
}
MadeGguf& MadeGguf::Ints(std::string_view key, const std::vector<int32_t>& values) {
  std::string bytes = LittleEndian<uint32_t>(5) + LittleEndian<uint64_t>(values.size());
  for (const int32_t value : values) {
    bytes += LittleEndian(value);
  }
  return Raw(key, 9, bytes);
}

MadeGguf& MadeGguf::Bools(std::string_view key, const std::vector<bool>& values) {
  std::string bytes = LittleEndian<uint32_t>(7) + LittleEndian<uint64_t>(values.size());
  for (const bool value : values) {
    bytes += value ? '\1' : '\0';
  }
  return Raw(key, 9, bytes);
}

MadeGguf& MadeGguf::Tensor(std::string_view name, uint32_t type, const std::vector<uint64_t>& shape,
                           std::string_view bytes) {
  tensor_bytes_ += GgufString(name) + LittleEndian(static_cast<uint32_t>(shape.size()));
  for (size_t i = shape.size(); i-- > 0;) {
    tensor_bytes_ += LittleEndian(shape[i]);
  }
  tensor_bytes_ += LittleEndian(type) + LittleEndian<uint64_t>(data_.size());
  data_ = Padded(data_ + std::string(bytes));
  ++tensors_;
  return *this;
}

MadeGguf MadeGguf::Keys(const std::string& architecture, uint32_t layers) {
  MadeGguf made;
  made.String("general.architecture", architecture)
      .Uint(architecture + ".block_count", layers)
      .Uint(architecture + ".context_length", 128)
      .Uint(architecture + ".embedding_length", 64)
      .Uint(architecture + ".feed_forward_length", 96)
      .Uint(architecture + ".attention.head_count", 2)
      .Float(architecture + ".attention.layer_norm_rms_epsilon", 1e-5f);
  return made;
}

MadeGguf MadeGguf::SmallLlama(uint32_t type) {
  MadeGguf made = Keys("llama", 1);
  const auto add = [&](const std::string& name, uint32_t kind, std::vector<uint64_t> shape) {
    const Dtype dtype = kind == 8 ? Dtype::kQ8_0 : kind == 1 ? Dtype::kF16 : Dtype::kF32;
    made.Tensor(
        name, kind, shape,
        std::string(TensorBytes(dtype, shape).value_or(0), static_cast<char>(made.tensors_ + 1)));
  };
  add("token_embd.weight", type, {8, 64});
  add("output_norm.weight", 0, {64});
  add("blk.0.attn_norm.weight", 0, {64});
  add("blk.0.ffn_norm.weight", 0, {64});
  for (const char* name : {"attn_q", "attn_k", "attn_v", "attn_output"}) {
    add(std::string("blk.0.") + name + ".weight", type, {64, 64});
  }
  add("blk.0.ffn_gate.weight", type, {96, 64});
  add("blk.0.ffn_up.weight", type, {96, 64});
  add("blk.0.ffn_down.weight", type, {64, 96});
  return made;
}

std::string MadeGguf::File(uint64_t tensors, uint64_t values) const {
  return Padded("GGUF" + LittleEndian<uint32_t>(3) + LittleEndian(tensors) + LittleEndian(values) +
                value_bytes_ + tensor_bytes_) +
         data_;
}

}  // namespace strata::testing
