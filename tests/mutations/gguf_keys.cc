#include "tests/mutations/gguf_keys.h"

#include <cstring>

namespace strata::testing {
namespace {

constexpr uint64_t kSizes[] = {1, 1, 2, 2, 4, 4, 4, 1, 0, 0, 8, 8, 8};

class Reader {
 public:
  // Behind the magic number and the version are the counts of tensors and of keys.
  explicit Reader(const std::string& file) : file_(file), at_(16) {}

  std::optional<GgufKeys> Read() {
    GgufKeys keys;
    const uint64_t count = Number();
    for (uint64_t i = 0; i < count && whole_; ++i) {
      const std::string name = Text();
      keys[name] = Value();
    }
    return whole_ ? std::optional<GgufKeys>(std::move(keys)) : std::nullopt;
  }

 private:
  // The next bytes' place; 0 where there are none.
  size_t Take(uint64_t bytes) {
    whole_ = whole_ && at_ <= file_.size() && bytes <= file_.size() - at_;
    if (!whole_) return 0;
    at_ += bytes;
    return at_ - bytes;
  }
  uint64_t Number(uint64_t bytes = 8) {
    uint64_t number = 0;
    const size_t at = Take(bytes);
    if (whole_) std::memcpy(&number, file_.data() + at, bytes);
    return number;
  }
  std::string Text() {
    const uint64_t length = Number();
    const size_t at = Take(length);
    return whole_ ? file_.substr(at, length) : "";
  }
  GgufKey Value() {
    GgufKey key;
    key.type = Number(4);
    uint64_t count = 1;
    if (key.type == kGgufList) {
      key.list = true;
      key.type = Number(4);
      count = Number();
    }
    const uint64_t bytes = GgufSizeOf(key.type);
    whole_ = whole_ && (bytes != 0 || key.type == kGgufString);
    for (uint64_t i = 0; i < count && whole_; ++i) {
      if (bytes == 0) {
        key.texts.push_back(Text());
      } else if (const size_t at = Take(bytes); whole_) {
        key.numbers.push_back(GgufNumberAt(file_.data() + at, key.type));
      }
    }
    return key;
  }

  const std::string& file_;
  size_t at_;
  bool whole_ = true;
};

}  // namespace

uint64_t GgufSizeOf(uint64_t type) { return type < std::size(kSizes) ? kSizes[type] : 0; }

double GgufNumberAt(const char* at, uint64_t type) {
  const auto read = [&](auto number) {
    std::memcpy(&number, at, sizeof(number));
    return static_cast<double>(number);
  };
  switch (type) {
    case 0:
    case kGgufBool:
      return read(uint8_t{0});
    case 1:
      return read(int8_t{0});
    case 2:
      return read(uint16_t{0});
    case 3:
      return read(int16_t{0});
    case 4:
      return read(uint32_t{0});
    case 5:
      return read(int32_t{0});
    case kGgufFloat32:
      return read(0.0f);
    case 10:
      return read(uint64_t{0});
    case 11:
      return read(int64_t{0});
    default:
      return read(0.0);
  }
}

std::optional<GgufKeys> GgufKeysOf(const std::string& file) { return Reader(file).Read(); }

}  // namespace strata::testing
