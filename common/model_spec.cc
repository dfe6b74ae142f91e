#include "common/model_spec.h"

namespace strata {

size_t DtypeBytes(Dtype dtype) {
  switch (dtype) {
    case Dtype::kU8:
    case Dtype::kI8:
      return 1;
    case Dtype::kF16:
    case Dtype::kBF16:
      return 2;
    case Dtype::kF32:
    case Dtype::kU32:
    case Dtype::kI32:
      return 4;
    case Dtype::kI64:
    case Dtype::kF64:
      return 8;
  }
  return 0;
}

const char* DtypeName(Dtype dtype) {
  switch (dtype) {
    case Dtype::kF32:
      return "F32";
    case Dtype::kF16:
      return "F16";
    case Dtype::kBF16:
      return "BF16";
    case Dtype::kU8:
      return "U8";
    case Dtype::kI8:
      return "I8";
    case Dtype::kU32:
      return "U32";
    case Dtype::kI32:
      return "I32";
    case Dtype::kI64:
      return "I64";
    case Dtype::kF64:
      return "F64";
  }
  return "?";
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
