#include "worker/service/bench_weights.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <utility>

#include "common/random.h"
#include "common/status.h"

namespace strata {
namespace {

constexpr uint16_t kOne = 0x3F80;  // 1.0 in bfloat16.
constexpr size_t kRandomValues = size_t{1} << 20;

uint16_t ToBf16(float value) { return static_cast<uint16_t>(std::bit_cast<uint32_t>(value) >> 16); }

uint64_t Elements(const StageTensor& tensor) {
  uint64_t count = 1;
  for (uint64_t size : tensor.shape) {
    count *= size;
  }
  return count;
}

absl::Status NoTensor(std::string_view name) {
  return Error(absl::StatusCode::kNotFound, "TENSOR_MISSING",
               "there is no tensor " + std::string(name));
}

}  // namespace

absl::StatusOr<ModelSpec> ShapeSpec(std::string_view shape) {
  struct Shape {
    const char* name;
    int layers, hidden, ffn, heads, kv_heads, vocab;
    bool tied;
  };
  for (const Shape& s : {Shape{"tiny11", 22, 2048, 5632, 32, 4, 32000, false},
                         Shape{"l321b", 16, 2048, 8192, 32, 8, 128256, true},
                         Shape{"l318b", 32, 4096, 14336, 32, 8, 128256, false}}) {
    if (shape == s.name) {
      const auto field = [](const char* key, int value) {
        return std::string("\"") + key + "\":" + std::to_string(value) + ",";
      };
      return ParseModelConfig(
          R"({"architectures":["LlamaForCausalLM"],"model_type":"llama","hidden_act":"silu",)" +
              field("num_hidden_layers", s.layers) + field("hidden_size", s.hidden) +
              field("intermediate_size", s.ffn) + field("num_attention_heads", s.heads) +
              field("num_key_value_heads", s.kv_heads) + field("vocab_size", s.vocab) +
              field("max_position_embeddings", 131072) +
              R"("rms_norm_eps":1e-5,"rope_theta":10000.0,"tie_word_embeddings":)" +
              (s.tied ? "true}" : "false}"),
          "");
    }
  }
  return Error(absl::StatusCode::kInvalidArgument, "BAD_SHAPE",
               "there is no shape \"" + std::string(shape) + "\"")
      .Hint("choose tiny11, l321b or l318b, or measure a checkpoint with --model PATH");
}

RandomWeights::RandomWeights(const std::vector<StageTensor>& tensors) {
  size_t largest_matrix = 0;
  size_t largest_vector = 0;
  for (const StageTensor& tensor : tensors) {
    size_t& largest = tensor.shape.size() > 1 ? largest_matrix : largest_vector;
    largest = std::max<size_t>(largest, Elements(tensor));
  }
  ones_.assign(largest_vector, kOne);
  matrix_.resize(largest_matrix);
  const size_t random = std::min(kRandomValues, largest_matrix);
  for (size_t i = 0; i < random; ++i) {
    const double uniform = UniformDouble(Philox(11, 0, static_cast<uint32_t>(i)));
    matrix_[i] = ToBf16(static_cast<float>((uniform - 0.5) * 0.06));
  }
  for (size_t i = random; i < largest_matrix; i += random) {
    std::memcpy(&matrix_[i], matrix_.data(),
                std::min(random, largest_matrix - i) * sizeof(uint16_t));
  }
  for (const StageTensor& tensor : tensors) {
    const auto& values = tensor.shape.size() > 1 ? matrix_ : ones_;
    tensors_[tensor.name] = {.dtype = Dtype::kBF16,
                             .shape = tensor.shape,
                             .data = reinterpret_cast<const uint8_t*>(values.data()),
                             .bytes = Elements(tensor) * sizeof(uint16_t)};
  }
}

absl::StatusOr<TensorView> RandomWeights::Find(std::string_view name) const {
  const auto it = tensors_.find(name);
  return it == tensors_.end() ? absl::StatusOr<TensorView>(NoTensor(name)) : it->second;
}

absl::StatusOr<std::unique_ptr<CheckpointWeights>> CheckpointWeights::Open(
    const Checkpoint& checkpoint) {
  auto weights = std::unique_ptr<CheckpointWeights>(new CheckpointWeights());
  for (const std::string& name : checkpoint.weight_files) {
    ASSIGN_OR_RETURN(MappedFile file, MappedFile::Open(checkpoint.path + "/" + name));
    weights->files_.emplace(name, std::move(file));
  }
  for (const TensorEntry& tensor : checkpoint.tensors) {
    const MappedFile& file = weights->files_.at(tensor.file);
    if (tensor.offset > file.size() || tensor.bytes > file.size() - tensor.offset) {
      return Error(absl::StatusCode::kFailedPrecondition, "FILE_CHANGED",
                   tensor.file + " became shorter while it was read");
    }
    weights->tensors_[tensor.name] = {.dtype = tensor.dtype,
                                      .shape = tensor.shape,
                                      .data = file.data() + tensor.offset,
                                      .bytes = tensor.bytes};
  }
  return weights;
}

absl::StatusOr<TensorView> CheckpointWeights::Find(std::string_view name) const {
  const auto it = tensors_.find(name);
  return it == tensors_.end() ? absl::StatusOr<TensorView>(NoTensor(name)) : it->second;
}

}  // namespace strata
