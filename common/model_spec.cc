#include "common/model_spec.h"

namespace strata {

namespace {

struct DtypeRow {
  Dtype dtype;
  const char* name;
  size_t bytes;
};
constexpr DtypeRow kDtypes[] = {
    {Dtype::kF32, "F32", 4},   {Dtype::kF16, "F16", 2},   {Dtype::kBF16, "BF16", 2},
    {Dtype::kU8, "U8", 1},     {Dtype::kI8, "I8", 1},     {Dtype::kU32, "U32", 4},
    {Dtype::kI32, "I32", 4},   {Dtype::kI64, "I64", 8},   {Dtype::kF64, "F64", 8},
    {Dtype::kQ4_0, "Q4_0", 0}, {Dtype::kQ4_1, "Q4_1", 0}, {Dtype::kQ5_0, "Q5_0", 0},
    {Dtype::kQ5_1, "Q5_1", 0}, {Dtype::kQ8_0, "Q8_0", 0}, {Dtype::kQ4_K, "Q4_K", 0},
    {Dtype::kQ5_K, "Q5_K", 0}, {Dtype::kQ6_K, "Q6_K", 0},
};

}  // namespace

size_t DtypeBytes(Dtype dtype) { return kDtypes[static_cast<size_t>(dtype)].bytes; }

const char* DtypeName(Dtype dtype) { return kDtypes[static_cast<size_t>(dtype)].name; }

std::optional<Dtype> DtypeOfName(std::string_view name) {
  for (const DtypeRow& row : kDtypes) {
    if (name == row.name) {
      return row.dtype;
    }
  }
  return std::nullopt;
}

std::string KvGroupName(const KvGroupSpec& group) {
  switch (group.kind) {
    case KvKind::kFull:
      return "full";
    case KvKind::kWindow:
      return "window-" + std::to_string(group.window);
    case KvKind::kMla:
      return "mla";
  }
  return "?";
}

uint64_t KvBytesPerToken(const ModelSpec& spec, uint32_t first_layer, uint32_t last_layer,
                         uint32_t group, uint32_t element_bytes) {
  uint64_t bytes = 0;
  for (uint32_t i = first_layer; i <= last_layer && i < spec.layers.size(); ++i) {
    const AttentionSpec& a = spec.layers[i].attention;
    if (a.kv_group == group) {
      bytes += uint64_t{2} * a.kv_heads * a.head_dim * element_bytes;
    }
  }
  return bytes;
}

}  // namespace strata
