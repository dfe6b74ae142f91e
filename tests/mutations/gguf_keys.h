// The key-values of a GGUF file, read a second time: not by the product's reader.
#ifndef STRATA_TESTS_MUTATIONS_GGUF_KEYS_H_
#define STRATA_TESTS_MUTATIONS_GGUF_KEYS_H_

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace strata::testing {

// The format's numbers of types.
inline constexpr uint64_t kGgufFloat32 = 6;
inline constexpr uint64_t kGgufBool = 7;
inline constexpr uint64_t kGgufString = 8;
inline constexpr uint64_t kGgufList = 9;
inline constexpr uint64_t kGgufFloat64 = 12;

// Bytes of a value; 0 of strings, lists, and types that there are not.
uint64_t GgufSizeOf(uint64_t type);

// A number of a type, as it lies in a file.
double GgufNumberAt(const char* at, uint64_t type);

// A value, or the values of a list of one type.
struct GgufKey {
  uint64_t type = 0;
  bool list = false;
  std::vector<double> numbers;
  std::vector<std::string> texts;

  bool is_float() const { return type == kGgufFloat32 || type == kGgufFloat64; }
  bool is_integer() const { return !is_float() && type != kGgufBool && type != kGgufString; }
};
using GgufKeys = std::map<std::string, GgufKey>;

// Nothing where the file ends within them.
std::optional<GgufKeys> GgufKeysOf(const std::string& file);

}  // namespace strata::testing

#endif  // STRATA_TESTS_MUTATIONS_GGUF_KEYS_H_
