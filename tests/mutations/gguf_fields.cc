#include "tests/mutations/gguf_fields.h"

#include <algorithm>
#include <cstring>

#include "tests/mutations/gguf_keys.h"

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
  if (type == kGgufString) {
    const uint64_t length = Add(8, key, "length of the value");
    if (length > 0) Add(length, key, "value");
  } else {
    Add(GgufSizeOf(type), key, "value");
  }
}

void Fields::Key() {
  const std::string key = Name();
  uint64_t type = Add(4, key, "type");
  if (type != kGgufList) {
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

}  // namespace strata::testing
