// Made-up GGUF files for tests.
#ifndef STRATA_TESTS_COMMON_CHECKPOINT_MADE_GGUF_H_
#define STRATA_TESTS_COMMON_CHECKPOINT_MADE_GGUF_H_

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace strata::testing {

// Writes key-values and tensors in the order of the calls, right or wrong.
class MadeGguf {
 public:
  MadeGguf& Uint(std::string_view key, uint32_t value);
  MadeGguf& Float(std::string_view key, float value);
  MadeGguf& Bool(std::string_view key, bool value);
  MadeGguf& String(std::string_view key, std::string_view value);
  MadeGguf& Strings(std::string_view key, const std::vector<std::string>& values);
  MadeGguf& Floats(std::string_view key, const std::vector<float>& values);
  MadeGguf& Ints(std::string_view key, const std::vector<int32_t>& values);
  MadeGguf& Bools(std::string_view key, const std::vector<bool>& values);
  // A value as it lies in the file behind its type.
  MadeGguf& Raw(std::string_view key, uint32_t type, std::string_view bytes);
  // `type` is ggml's number; the shape has its slowest dimension first.
  MadeGguf& Tensor(std::string_view name, uint32_t type, const std::vector<uint64_t>& shape,
                   std::string_view bytes);

  // The keys that every architecture needs: hidden 64, two heads, ffn 96, context 128. No tensors.
  static MadeGguf Keys(const std::string& architecture, uint32_t layers);
  // The least that a llama with one layer has: hidden 64, two heads, ffn 96, vocabulary 8; matrices
  // of the type, bytes that differ from tensor to tensor.
  static MadeGguf SmallLlama(uint32_t type = 0);

  std::string File() const { return File(tensors_, values_); }
  // With other counts than there are.
  std::string File(uint64_t tensors, uint64_t values) const;

 private:
  uint64_t values_ = 0;
  uint64_t tensors_ = 0;
  std::string value_bytes_;
  std::string tensor_bytes_;
  std::string data_;
};

// Little-endian bytes.
template <typename Value>
std::string LittleEndian(Value value) {
  return std::string(reinterpret_cast<const char*>(&value), sizeof(value));
}
std::string GgufString(std::string_view text);

}  // namespace strata::testing

#endif  // STRATA_TESTS_COMMON_CHECKPOINT_MADE_GGUF_H_
