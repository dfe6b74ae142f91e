#include "tests/mutations/gguf_fields.h"

#include <algorithm>
#include <cstring>

namespace strata::testing {

Fields::Fields(const std::string& file) : file_(file) {
  Add(4, "", "magic");
  Add(4, "", "version");
  const uint64_t tensors = Add(8, "", "count of tensors");
  const uint64_t values = Add(8, "", "count of keys");
  for (uint64_t i = 0; i < values; ++i) Key();
  for (uint64_t i = 0; i < tensors; ++i) Tensor();
}

uint64_t Fields::Peek(size_t at, size_t bytes) const {
  uint64_t number = 0;
  std::memcpy(&number, file_.data() + at, std::min<size_t>(bytes, 8));
  return number;
}

uint64_t Fields::Add(size_t bytes, const std::string& owner, const std::string& what) {
  fields_.push_back({at_, bytes, owner, what});
  at_ += bytes;
  return Peek(at_ - bytes, bytes);
}

std::string Fields::Name() {
  const uint64_t length = Peek(at_, 8);
  std::string name = file_.substr(at_ + 8, length);
  Add(8, name, "length of the name");
  Add(length, name, "name");
  return name;
}

void Fields::Value(const std::string& key, uint64_t type) {
  constexpr size_t kSizes[] = {1, 1, 2, 2, 4, 4, 4, 1, 0, 0, 8, 8, 8};
  if (type == 8) {
    const uint64_t length = Add(8, key, "length of the value");
    if (length > 0) Add(length, key, "value");
  } else {
    Add(kSizes[type], key, "value");
  }
  fields_.back().type = type;
}

void Fields::Key() {
  const std::string key = Name();
  uint64_t type = Add(4, key, "type");
  if (type != 9) {
    Value(key, type);
    return;
  }
  type = Add(4, key, "type of the list");
  const uint64_t count = Add(8, key, "count of the list");
  const size_t before = fields_.size();
  for (uint64_t i = 0; i < count; ++i) Value(key, type);
  // A few of a long list, so that it does not win by its length.
  if (fields_.size() > before + 4) fields_.resize(before + 4);
}

void Fields::Tensor() {
  const std::string name = Name();
  const uint64_t rank = Add(4, name, "rank");
  for (uint64_t i = 0; i < rank; ++i) Add(8, name, "dimension");
  Add(4, name, "dtype");
  Add(8, name, "offset");
}

std::string Fields::architecture() const {
  for (const Field& field : fields_) {
    if (field.owner == "general.architecture" && field.what == "value") {
      return file_.substr(field.at, field.bytes);
    }
  }
  return "";
}

std::optional<double> NumberAt(const std::string& file, const Field& field) {
  const char* at = file.data() + field.at;
  const auto read = [&](auto number) {
    std::memcpy(&number, at, sizeof(number));
    return static_cast<double>(number);
  };
  switch (field.type) {
    case 4:
      return read(uint32_t{0});
    case 5:
      return read(int32_t{0});
    case 6:
      return read(0.0f);
    case 10:
      return read(uint64_t{0});
    default:
      return std::nullopt;
  }
}

}  // namespace strata::testing
