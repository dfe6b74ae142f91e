#include "tests/mutations/loaded.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>

#include "common/status.h"
#include "tests/worker/backend/models/forward.h"

namespace strata::testing {
namespace {

// Of buffers and KV for a prompt, and for each byte of the files: as float32 it is four, and a
// matrix that is unpacked is there besides.
constexpr uint64_t kMostBytesBeside = uint64_t{4} << 20;
constexpr uint64_t kMostForOneByte = 5;
// What is made of them on the way, given back or not.
constexpr uint64_t kMostAllocationsToLoad = 50'000;
constexpr uint64_t kMostMadeOfOneByte = 16;

}  // namespace

absl::StatusOr<std::vector<float>> LogitsOfModel(Backend* backend, const ModelSpec& spec,
                                                 const TensorSource& weights, Cost* cost) {
  std::vector<uint32_t> ids(kPromptTokens);
  for (size_t i = 0; i < ids.size(); ++i) {
    ids[i] = static_cast<uint32_t>((7 * i + 3) % std::min<uint32_t>(spec.vocab, 200));
  }
  ForwardOptions options;
  options.context = 64;
  options.kv_tokens = 128;
  options.max_batch_tokens = 64;
  options.max_batch_items = 2;
  const auto compute = [&]() -> absl::StatusOr<std::vector<float>> {
    ASSIGN_OR_RETURN(const auto model, ForwardModel::Load(backend, spec, weights, options));
    const uint32_t above = LongRotaryAbove(spec);
    const uint32_t variant = above != 0 && ids.size() > above ? 1 : 0;
    ASSIGN_OR_RETURN(const std::vector<RowResult> rows, model->Run(ids, 0, variant));
    return LogitsOf(rows);
  };
  Cost ignored;
  return Measured(compute, cost != nullptr ? cost : &ignored);
}

void LinkAllButConfig(const std::string& folder, const TempFolder& to) {
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    const std::string name = entry.path().filename().string();
    if (name != "config.json" && name != "expected.safetensors") {
      std::filesystem::create_symlink(std::filesystem::absolute(entry.path()), to.File(name));
    }
  }
}

FileTensors TensorsFor(const FileTensors& files, const ModelSpec& spec) {
  FileTensors tensors = files;
  const auto last = static_cast<uint32_t>(spec.layers.size()) - 1;
  tensors.Unpack(TensorsOf(spec, 0, last, true, true,
                           [&](const std::string& name) { return files.Has(name); }));
  return tensors;
}

void ExpectReadWithin(const Cost& cost, uint64_t file_bytes, uint64_t most_bytes) {
  const uint64_t most = most_bytes + 64 * file_bytes;
  EXPECT_LT(cost.bytes, most);
  EXPECT_LT(cost.allocated_bytes, 4 * most);
  EXPECT_LT(cost.allocations, most / 64);
}

void ExpectLoadedWithin(const Cost& cost, uint64_t file_bytes) {
  EXPECT_LT(cost.bytes, kMostBytesBeside + kMostForOneByte * file_bytes);
  EXPECT_LT(cost.allocations, kMostAllocationsToLoad);
  EXPECT_LT(cost.allocated_bytes, kMostBytesBeside + kMostMadeOfOneByte * file_bytes);
}

bool NamesOne(const std::string& said, const std::vector<std::string>& fields) {
  return std::any_of(fields.begin(), fields.end(), [&](const std::string& field) {
    return !field.empty() && said.find(field) != std::string::npos;
  });
}

}  // namespace strata::testing
