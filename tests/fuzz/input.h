// A fuzz input as a source of values, for targets whose subject is no text: what the fuzzer changes
// in the bytes changes what is drawn.
#ifndef STRATA_TESTS_FUZZ_INPUT_H_
#define STRATA_TESTS_FUZZ_INPUT_H_

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace strata::fuzz {

// Zeros and empty strings come once the bytes are used up. `data` outlives it.
class Input {
 public:
  Input(const uint8_t* data, size_t size) : left_(reinterpret_cast<const char*>(data), size) {}

  bool empty() const { return left_.empty(); }

  uint8_t Byte() {
    if (left_.empty()) {
      return 0;
    }
    const auto byte = static_cast<uint8_t>(left_.front());
    left_.remove_prefix(1);
    return byte;
  }
  bool Bool() { return Byte() % 2 == 1; }
  // Below `limit` <= 256, which must not be 0.
  uint32_t Below(uint32_t limit) { return Byte() % limit; }
  uint64_t Uint64() {
    uint64_t value = 0;
    for (int i = 0; i < 8; ++i) {
      value = value << 8 | Byte();
    }
    return value;
  }
  // Small numbers, and those at which arithmetic goes wrong.
  uint64_t Number() {
    switch (Byte() % 8) {
      case 0:
        return UINT64_MAX - Byte();
      case 1:
        return (uint64_t{1} << Byte() % 64) - 1 + Byte() % 3;
      case 2:
        return Uint64();
      default:
        return Byte();
    }
  }
  // Any float32, NaN and infinities included.
  float Float() { return std::bit_cast<float>(static_cast<uint32_t>(Uint64())); }
  // At most `limit` bytes, as many as are there.
  std::string Bytes(size_t limit) {
    const std::string_view taken = left_.substr(0, std::min(limit, left_.size()));
    left_.remove_prefix(taken.size());
    return std::string(taken);
  }
  // Up to 255 bytes, as the next one says.
  std::string Text() { return Bytes(Byte()); }

 private:
  std::string_view left_;
};

// Cuts a text input at lines of "----" into exactly `count` sections; those that are missing are
// empty, and the last one takes the rest.
inline std::vector<std::string_view> Sections(const uint8_t* data, size_t size, size_t count) {
  constexpr std::string_view kCut = "\n----\n";
  std::string_view left(reinterpret_cast<const char*>(data), size);
  std::vector<std::string_view> sections;
  while (sections.size() + 1 < count) {
    const size_t cut = left.find(kCut);
    sections.push_back(left.substr(0, cut));
    left = cut == std::string_view::npos ? std::string_view() : left.substr(cut + kCut.size());
  }
  sections.push_back(left);
  return sections;
}

}  // namespace strata::fuzz

// What every target defines: one run on one input, which returns 0. A finding is a crash, a
// sanitizer's report, a run that takes too long or too much memory, or a STRATA_CHECK of the
// target.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);

#endif  // STRATA_TESTS_FUZZ_INPUT_H_
