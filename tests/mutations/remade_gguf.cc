#include "tests/mutations/remade_gguf.h"

#include <gtest/gtest.h>

#include "common/checkpoint/gguf.h"

namespace strata::testing {
namespace {

GgufHeader HeaderOf(const std::string& file) {
  auto header = ParseGgufHeader(file, file.size(), "m.gguf");
  EXPECT_TRUE(header.ok()) << header.status();
  return header.ok() ? *std::move(header) : GgufHeader();
}

void AddValues(const GgufHeader& header, MadeGguf* made) {
  for (const auto& [key, value] : header.values) {
    const auto type = static_cast<uint32_t>(value.type);
    if (value.is_list) {
      made->Raw(key, static_cast<uint32_t>(GgufType::kArray),
                LittleEndian(type) + LittleEndian(value.count) + std::string(value.bytes));
    } else if (value.type == GgufType::kString) {
      made->Raw(key, type, GgufString(value.bytes));
    } else {
      made->Raw(key, type, value.bytes);
    }
  }
}

// The number of a type in the header, which is what follows the dimensions.
uint32_t TypeNumber(const std::string& file, const GgufTensor& tensor) {
  const size_t name = static_cast<size_t>(tensor.name.data() - file.data());
  uint32_t number = 0;
  file.copy(reinterpret_cast<char*>(&number), sizeof(number),
            name + tensor.name.size() + sizeof(uint32_t) + tensor.shape.size() * sizeof(uint64_t));
  return number;
}

void AddTensors(const std::string& file, const GgufHeader& header, size_t begin, size_t end,
                MadeGguf* made) {
  for (size_t i = begin; i < end; ++i) {
    const GgufTensor& tensor = header.tensors[i];
    made->Tensor(tensor.name, TypeNumber(file, tensor), tensor.shape,
                 std::string_view(file).substr(tensor.offset, tensor.bytes));
  }
}

}  // namespace

std::string WithMoreKeys(const std::string& file, const std::function<void(MadeGguf*)>& add) {
  const GgufHeader header = HeaderOf(file);
  MadeGguf made;
  AddValues(header, &made);
  add(&made);
  AddTensors(file, header, 0, header.tensors.size(), &made);
  return made.File();
}

std::vector<std::string> InTwoParts(const std::string& file) {
  const GgufHeader header = HeaderOf(file);
  const size_t all = header.tensors.size();
  std::vector<std::string> parts;
  for (uint32_t part = 0; part < 2; ++part) {
    MadeGguf made;
    if (part == 0) AddValues(header, &made);
    made.Uint("split.no", part)
        .Uint("split.count", 2)
        .Uint("split.tensors.count", static_cast<uint32_t>(all));
    AddTensors(file, header, part == 0 ? 0 : all / 2, part == 0 ? all / 2 : all, &made);
    parts.push_back(made.File());
  }
  return parts;
}

}  // namespace strata::testing
