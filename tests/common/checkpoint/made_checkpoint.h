// Made-up checkpoint folders for tests.
#ifndef STRATA_TESTS_COMMON_CHECKPOINT_MADE_CHECKPOINT_H_
#define STRATA_TESTS_COMMON_CHECKPOINT_MADE_CHECKPOINT_H_

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "common/checkpoint/checkpoint.h"

namespace strata::testing {

// A folder of its own that goes away with the object.
class TempFolder {
 public:
  TempFolder();
  ~TempFolder();
  TempFolder(const TempFolder&) = delete;
  TempFolder& operator=(const TempFolder&) = delete;

  const std::string& path() const { return path_; }
  std::string File(std::string_view name) const { return path_ + "/" + std::string(name); }
  void Write(std::string_view name, std::string_view contents) const;
  std::string Read(std::string_view name) const;
  void Remove(std::string_view name) const;

 private:
  std::string path_;
};

// A tensor to write; `bytes` is its little-endian data.
struct MadeTensor {
  std::string name;
  std::string dtype;
  std::vector<uint64_t> shape;
  std::string bytes;
};

// A safetensors file: tensors in the order given.
std::string SafetensorsFile(const std::vector<MadeTensor>& tensors);
// A file with this header, whatever it is, and so much data.
std::string SafetensorsFile(std::string_view header, size_t data_bytes);

// config.json of a small Llama (hidden 8, 2 layers, 2 heads, vocab 10); `more` goes in front, for
// example "\"attention_bias\": true,".
std::string SmallConfig(std::string_view more = "");
// Tensors for a spec, filled with bytes that differ from tensor to tensor.
std::vector<MadeTensor> MakeTensors(const ModelSpec& spec, std::string_view dtype = "F32");
// Writes config.json and model.safetensors.
void WriteSmallCheckpoint(const TempFolder& folder, std::string_view more_config = "");
// Writes config.json and `shards` files with their index.
void WriteShardedCheckpoint(const TempFolder& folder, int shards);

}  // namespace strata::testing

#endif  // STRATA_TESTS_COMMON_CHECKPOINT_MADE_CHECKPOINT_H_
