// The models of tests/golden/models and models/recall, with what they must give.
#ifndef STRATA_TESTS_WORKER_BACKEND_MODELS_GOLDEN_MODEL_H_
#define STRATA_TESTS_WORKER_BACKEND_MODELS_GOLDEN_MODEL_H_

#include <cstdint>
#include <map>
#include <memory>
#include <ostream>
#include <string>
#include <vector>

#include "common/checkpoint/checkpoint.h"
#include "strata/v1/types.pb.h"
#include "worker/backend/tensor_source.h"
#include "worker/weights/stored_tensors.h"

namespace strata::testing {

// safetensors and GGUF files, read whole.
class FileTensors : public TensorSource {
 public:
  // Adds the tensors of one file; fails the test if it cannot be read.
  void AddFile(const std::string& folder, const std::string& file);
  // Adds those of a checkpoint that was opened, by the names that it has for them.
  void AddCheckpoint(const Checkpoint& checkpoint);
  // From now on gives the matrices among these as workers' backends get them (StoredTensors).
  void Unpack(const std::vector<StageTensor>& tensors);
  absl::StatusOr<TensorView> Find(std::string_view name) const override;
  // As the file has it.
  absl::StatusOr<TensorView> FindStored(std::string_view name) const;
  // A float32 tensor's values; fails the test where there is none.
  std::vector<float> Floats(const std::string& name) const;
  bool Has(const std::string& name) const { return entries_.contains(name); }

 private:
  std::map<std::string, std::string> files_;
  std::map<std::string, TensorEntry, std::less<>> entries_;
  std::shared_ptr<const FileTensors> packed_;
  std::shared_ptr<const StoredTensors> unpacked_;
};

struct GoldenCase {
  std::string name;
  std::vector<uint32_t> prompt_ids;
  std::vector<uint32_t> greedy_ids;
  uint32_t rotary_variant = 0;
  float embedding_scale = 0;  // In place of the model's; 0: the model's.
  // In place of tokens' embeddings, by position.
  std::map<uint32_t, std::vector<float>> embeddings;
  // prompt + greedy_ids but the last: what the expected logits are of.
  std::vector<uint32_t> AllIds() const;
};

struct GoldenModel {
  std::string name;
  ModelSpec spec;
  FileTensors weights;
  FileTensors expected;
  std::vector<GoldenCase> cases;  // Whose logits are expected.
  std::vector<GoldenCase> all_cases;
  // "w=bf16,head=bf16": of the numerics class, as the layers' matrices and the head are stored.
  std::string weights_dtype;
  std::string head_dtype;
};

// By the names of GoldenModelNames.
std::vector<std::string> GoldenModelNames();
GoldenModel LoadGoldenModel(const std::string& name);

// A golden model in a numerics class of its own: other weights or activations than the reference's.
struct GoldenFormat {
  std::string model;
  v1::Quantize quantize = v1::QUANTIZE_NONE;
  v1::Activations activations = v1::ACTIVATIONS_F32;
  // "llama31-mlx4", "recall-int8", "recall-int8-f32", "gguf/llama-q8_0-a8".
  std::string Name() const;
  // Whether the reference's numbers are to be met.
  bool IsReference() const;
};
// As a test's parameter.
inline void PrintTo(const GoldenFormat& format, std::ostream* out) { *out << format.Name(); }
// Every model as its reference has it, and what quantizing makes of some.
std::vector<GoldenFormat> GoldenFormats();

}  // namespace strata::testing

#endif  // STRATA_TESTS_WORKER_BACKEND_MODELS_GOLDEN_MODEL_H_
