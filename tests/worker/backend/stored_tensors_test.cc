// Matrices that other tools quantized: the weights that their own libraries dequantize, bit for
// bit, and what of them a backend gets.
#include "worker/weights/stored_tensors.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <set>

#include "common/digest.h"
#include "common/model/block_formats.h"
#include "common/model/stored_matrix.h"
#include "common/status.h"
#include "tests/golden.h"
#include "tests/worker/backend/models/forward.h"
#include "tests/worker/backend/models/golden_model.h"
#include "worker/backend/cpu/cpu_backend.h"
#include "worker/backend/cpu/weights/packed_matrix.h"

namespace strata::testing {
namespace {

using ::testing::HasSubstr;

constexpr uint64_t kOutputs = 64;
constexpr uint64_t kInputs = 128;

struct StoredCase {
  const char* name;
  QuantizationSpec spec;
};

QuantizationSpec Spec(QuantizationMethod method, uint32_t bits, uint32_t group) {
  QuantizationSpec spec;
  spec.method = method;
  spec.integers = {bits, group};
  return spec;
}

QuantizationSpec Gptq(uint32_t bits, uint32_t group, bool less_one = true, bool order = false) {
  QuantizationSpec spec = Spec(QuantizationMethod::kGptq, bits, group);
  spec.zeros_less_one = less_one;
  spec.has_order = order;
  return spec;
}

QuantizationSpec Packed(uint32_t bits, uint32_t group, bool zeros, bool order = false) {
  QuantizationSpec spec = Spec(QuantizationMethod::kPacked, bits, group);
  spec.has_zeros = zeros;
  spec.has_order = order;
  return spec;
}

QuantizationSpec Float8(uint32_t outputs, uint32_t inputs) {
  QuantizationSpec spec = Spec(QuantizationMethod::kFloat8, 8, 0);
  spec.block_outputs = outputs;
  spec.block_inputs = inputs;
  return spec;
}

QuantizationSpec Integers(uint32_t bits, uint32_t group, bool zeros = false) {
  QuantizationSpec spec = Spec(QuantizationMethod::kIntegers, bits, 0);
  spec.block_outputs = 1;
  spec.block_inputs = group;
  spec.has_zeros = zeros;
  return spec;
}

const std::vector<StoredCase>& Cases() {
  static const std::vector<StoredCase> cases = {
      {"llama31-awq", Spec(QuantizationMethod::kAwq, 4, 32)},
      {"qwen2-gptq4", Gptq(4, 32)},
      {"qwen3-gptq4-v2", Gptq(4, 32, false)},
      {"llama31-gptq4-sym", Gptq(4, 32)},
      {"llama31-gptq8", Gptq(8, 0)},
      {"llama31-gptq4-actorder", Gptq(4, 32, true, true)},
      {"qwen2-packed4", Packed(4, 32, false)},
      {"qwen3-packed4-zeros", Packed(4, 32, true)},
      {"llama31-packed8", Packed(8, 0, false)},
      {"llama31-packed8-zeros", Packed(8, 0, true)},
      {"qwen3-packed4-actorder", Packed(4, 32, false, true)},
      {"llama31-fp8", Float8(0, 0)},
      {"qwen2-fp8-channel", Float8(1, 0)},
      {"qwen3-fp8-block", Float8(32, 64)},
      {"deepseek-v3-fp8", Float8(8, 16)},
      {"llama31-w8a8", Integers(8, 0)},
      {"qwen2-w8a8-zeros", Integers(8, 0, true)},
      {"qwen3-w4a8", Integers(4, 32)},
      {"qwen3-nvfp4", Spec(QuantizationMethod::kNvfp4, 4, 16)},
      {"llama31-mxfp4", Spec(QuantizationMethod::kMxfp4, 4, 32)},
      {"qwen2-mxfp8", Float8(1, 32)},
      {"qwen3-packed-bits", Packed(6, 64, false)},
      {"qwen3-fp8-exponents", Float8(32, 48)},
      {"llama31-nf4", Spec(QuantizationMethod::kBitsAndBytes, 4, 64)},
      {"qwen3-nf4-double", Spec(QuantizationMethod::kBitsAndBytes, 4, 64)},
      {"qwen3-fp4", Spec(QuantizationMethod::kBitsAndBytes, 4, 64)},
  };
  return cases;
}

// Tensors with digests, some of whose bytes tests change.
class Source : public TensorSource {
 public:
  explicit Source(const FileTensors& files) : files_(files) {}
  absl::StatusOr<TensorInfo> Describe(std::string_view name) const override {
    ASSIGN_OR_RETURN(const TensorView view, View(name));
    return TensorInfo{
        view.dtype, view.shape, view.bytes,
        Sha256Hex(std::string_view(reinterpret_cast<const char*>(view.data), view.bytes))};
  }
  absl::Status Prepare(const std::vector<std::string>& names) const override {
    prepared_.insert(names.begin(), names.end());
    return absl::OkStatus();
  }
  absl::StatusOr<TensorView> Find(std::string_view name) const override {
    return prepared_.contains(name)
               ? View(name)
               : absl::FailedPreconditionError("unprepared: " + std::string(name));
  }
  void Release(std::string_view name, size_t) const override { prepared_.erase(std::string(name)); }
  // A tensor's bytes, from now on its own.
  std::string& Change(const std::string& name) {
    const auto view = files_.Find(name);
    std::string& bytes = changed_[name];
    bytes.assign(reinterpret_cast<const char*>(view->data), view->bytes);
    return bytes;
  }
  size_t prepared() const { return prepared_.size(); }

 private:
  absl::StatusOr<TensorView> View(std::string_view name) const {
    ASSIGN_OR_RETURN(TensorView view, files_.Find(name));
    const auto changed = changed_.find(name);
    if (changed != changed_.end()) {
      view.data = reinterpret_cast<const uint8_t*>(changed->second.data());
    }
    return view;
  }

  const FileTensors& files_;
  std::map<std::string, std::string, std::less<>> changed_;
  mutable std::set<std::string, std::less<>> prepared_;
};

class StoredTensorsTest : public ::testing::TestWithParam<StoredCase> {
 protected:
  StoredTensorsTest() {
    files_.AddFile(GoldenPath(""), "quantized.safetensors");
    files_.AddFile(GoldenPath(""), "formats.safetensors");
    matrix_ = StoredMatrixAt(GetParam().spec, GetParam().name, kOutputs, kInputs,
                             [this](const std::string& name) { return files_.Has(name); });
    tensors_.push_back({matrix_.codes.name, matrix_.codes.shape, matrix_.codes.dtypes, matrix_});
    want_ = files_.Floats(std::string(GetParam().name) + ".values");
  }
  std::string Name(const char* kind) const { return std::string(GetParam().name) + kind; }
  // A prepared tensor as a backend gets it, of 4-byte elements.
  template <typename Element>
  std::vector<Element> Get(const StoredTensors& stored, const char* kind) const {
    const auto view = stored.Find(Name(kind));
    EXPECT_TRUE(view.ok()) << view.status();
    std::vector<Element> values(view.ok() ? view->bytes / sizeof(Element) : 0);
    if (view.ok()) {
      std::memcpy(values.data(), view->data, view->bytes);
    }
    return values;
  }
  std::vector<float> Floats(const StoredTensors& stored) const {
    const KeptForm kept = matrix_.Kept();
    if (kept.kind == KeptForm::Kind::kFloats) {
      return Get<float>(stored, ".weight");
    }
    if (kept.kind == KeptForm::Kind::kBlocks) {
      const auto rows = Get<uint8_t>(stored, ".weight");
      std::vector<float> decoded(kOutputs * kInputs);
      for (size_t part = 0; part < decoded.size() / kBlockPart; ++part) {
        constexpr size_t kParts = kInputs / kBlockPart;
        DecodePart(kept.blocks, rows.data() + part / kParts * (rows.size() / kOutputs),
                   part % kParts, decoded.data() + part * kBlockPart);
      }
      return decoded;
    }
    const auto words = Get<uint32_t>(stored, ".weight");
    const auto scales = Get<float>(stored, ".scales");
    const auto biases = Get<float>(stored, ".biases");
    std::vector<float> values;
    for (size_t i = 0; i < kOutputs * kInputs; ++i) {
      const uint32_t bits = matrix_.Kept().bits;
      const uint32_t a_word = 32 / bits;
      const uint32_t code = words[i / a_word] >> i % a_word * bits & ((1u << bits) - 1);
      const size_t group = i / matrix_.KeptGroup();
      values.push_back(std::fma(scales[group], static_cast<float>(code), biases[group]));
    }
    return values;
  }

  FileTensors files_;
  StoredMatrix matrix_;
  std::vector<StageTensor> tensors_;
  std::vector<float> want_;
};

TEST_P(StoredTensorsTest, WeightsAreTheReferencesBitForBit) {
  ASSERT_EQ(want_.size(), kOutputs * kInputs);
  const Source source(files_);
  const StoredTensors stored(tensors_, source);
  ASSERT_TRUE(stored.Prepare({Name(".weight")}).ok());
  EXPECT_EQ(Floats(stored), want_);
}

TEST_P(StoredTensorsTest, TakesTheBytesThatAreAccounted) {
  if (const KeptForm kept = matrix_.Kept(); kept.kind == KeptForm::Kind::kBlocks) {
    EXPECT_EQ(matrix_.KeptBytes(), cpu::PackedMatrix::PackedBytes(cpu::PackedMatrix::BlockShape(
                                       kept.blocks, kOutputs, kInputs)));
    return;
  }
  cpu::AffineTensor affine;
  affine.bits = matrix_.Kept().bits;
  affine.group = matrix_.KeptGroup();
  affine.weight.shape = {kOutputs, kInputs * affine.bits / 32};
  affine.scales.shape = {kOutputs, kInputs / std::max(1u, affine.group)};
  const cpu::PanelView panels = affine.group == 0
                                    ? cpu::PackedMatrix::FloatShape(Dtype::kF32, kOutputs, kInputs)
                                    : cpu::PackedMatrix::AffineShape(affine);
  EXPECT_EQ(matrix_.KeptBytes(), cpu::PackedMatrix::PackedBytes(panels));
}

TEST_P(StoredTensorsTest, IsMadeWhenItIsAskedForAndLetsGoOfItsParts) {
  const Source source(files_);
  const StoredTensors stored(tensors_, source);
  EXPECT_EQ(stored.Find(Name(".weight")).status().code(), absl::StatusCode::kFailedPrecondition);
  ASSERT_TRUE(stored.Prepare({Name(".weight"), Name(".values")}).ok());
  EXPECT_EQ(source.prepared(), matrix_.Parts().size() + 1);
  const std::vector<float> once = Floats(stored);
  EXPECT_EQ(source.prepared(), 1u);  // What is no matrix is the source's own.
  EXPECT_EQ(Get<float>(stored, ".values"), want_);
  const auto info = stored.Describe(Name(".weight"));
  ASSERT_TRUE(info.ok()) << info.status();
  stored.Release(Name(".weight"), info->bytes);
  EXPECT_EQ(stored.Find(Name(".weight")).status().code(), absl::StatusCode::kFailedPrecondition);
  ASSERT_TRUE(stored.Prepare({Name(".weight")}).ok());
  EXPECT_EQ(Floats(stored), once);
}

TEST_P(StoredTensorsTest, DigestsNameTheContentOfEachPart) {
  Source source(files_);
  const StoredTensors stored(tensors_, source);
  const auto digest = [&] { return stored.Describe(Name(".weight"))->sha256; };
  const std::string before = digest();
  EXPECT_EQ(before.size(), 64u);
  EXPECT_EQ(stored.Describe(Name(".weight"))->sources.size(), matrix_.Parts().size());
  for (const StoredPart* part : matrix_.Parts()) {
    std::string& bytes = source.Change(part->name);
    bytes[0] ^= 1;
    EXPECT_NE(digest(), before) << part->name;
    bytes[0] ^= 1;
    EXPECT_EQ(digest(), before);
  }
}

TEST_P(StoredTensorsTest, AnOrderThatCannotBeIsRefusedByName) {
  if (matrix_.order.name.empty()) {
    return;  // AWQ has none.
  }
  Source source(files_);
  const StoredTensors stored(tensors_, source);
  source.Change(matrix_.order.name)[4] = 99;  // Of the second input.
  ASSERT_TRUE(stored.Prepare({Name(".weight")}).ok());
  const absl::Status status = stored.Find(Name(".weight")).status();
  EXPECT_EQ(ReasonOf(status), "TENSOR_VALUE");
  EXPECT_THAT(std::string(status.message()), HasSubstr(matrix_.order.name));
  EXPECT_THAT(std::string(status.message()), HasSubstr("group 99 of input 1"));
}

// Whatever the state says that weights are rounded to.
TEST_P(StoredTensorsTest, CodesStandForTheFloatsOfTheSameTensors) {
  if (matrix_.Kept().kind != KeptForm::Kind::kBlocks) {
    return;
  }
  std::set<std::vector<float>> all;
  for (const std::string dtype : {"\"bfloat16\"", "\"float16\" ", "\"float32\" "}) {
    Source source(files_);
    if (!matrix_.state.name.empty()) {
      std::string& text = source.Change(matrix_.state.name);
      text.replace(text.find("\"bfloat16\""), dtype.size(), dtype);
    }
    StageTensor floats = tensors_[0];
    floats.matrix->as_floats = true;
    const StoredTensors codes(tensors_, source);
    const StoredTensors widened({floats}, source);
    ASSERT_TRUE(codes.Prepare({Name(".weight")}).ok());
    const std::vector<float> values = Floats(codes);
    ASSERT_TRUE(widened.Prepare({Name(".weight")}).ok());
    EXPECT_EQ(values, Get<float>(widened, ".weight")) << dtype;
    all.insert(values);
  }
  EXPECT_EQ(all.size(), matrix_.state.name.empty() ? 1u : 3u);
}

// bitsandbytes' JSON beside a matrix: each digit of it counts, and so does that it is there.
TEST_P(StoredTensorsTest, AStateThatSaysOtherwiseIsRefusedByName) {
  if (matrix_.state.name.empty()) {
    return;
  }
  const auto refused = [&](const std::string& what, const std::string& by) {
    Source source(files_);
    const StoredTensors stored(tensors_, source);
    std::string& text = source.Change(matrix_.state.name);
    const size_t at = text.find(what);
    ASSERT_NE(at, std::string::npos) << text;
    text.replace(at, by.size(), by);
    ASSERT_TRUE(stored.Prepare({Name(".weight")}).ok());
    const absl::Status status = stored.Find(Name(".weight")).status();
    EXPECT_EQ(ReasonOf(status), "TENSOR_VALUE") << by;
    EXPECT_THAT(std::string(status.message()), HasSubstr(matrix_.state.name));
  };
  refused("\"blocksize\": 64", "\"blocksize\": 32");
  refused("[64, 128]", "[128, 64]");
  refused("bfloat16", "float128");
  refused("\"quant_type\"", "\"quant_tipe\"");
  refused("{", "[");
}

TEST_P(StoredTensorsTest, CodesOfMoreBitsThanConfigSaysAreRefusedByName) {
  if (matrix_.kind != StoredCodes::kSigned || matrix_.bits == 8) {
    return;
  }
  Source source(files_);
  const StoredTensors stored(tensors_, source);
  source.Change(matrix_.codes.name)[5] = 8;
  ASSERT_TRUE(stored.Prepare({Name(".weight")}).ok());
  const absl::Status status = stored.Find(Name(".weight")).status();
  EXPECT_EQ(ReasonOf(status), "TENSOR_VALUE");
  EXPECT_THAT(std::string(status.message()), HasSubstr("has 8, which is no integer of 4 bits"));
}

// Though there were a form for integers.
TEST_P(StoredTensorsTest, WhatIsUsedInFloatsIsMadeOfThem) {
  const Source source(files_);
  const StoredTensors integers(tensors_, source);
  const std::string digest = integers.Describe(Name(".weight"))->sha256;
  matrix_.as_floats = true;
  tensors_[0].matrix = matrix_;
  const StoredTensors stored(tensors_, source);
  ASSERT_TRUE(stored.Prepare({Name(".weight")}).ok());
  EXPECT_EQ(stored.Describe(Name(".weight"))->dtype, Dtype::kF32);
  EXPECT_NE(stored.Describe(Name(".weight"))->sha256, digest);
  EXPECT_EQ(Get<float>(stored, ".weight"), want_);
  EXPECT_EQ(matrix_.KeptBytes(), kOutputs * kInputs * sizeof(float));
}

// What a step of one row reads of all layers' matrices, against the same model's in bfloat16.
uint64_t StepBytes(const GoldenModel& model) {
  auto backend = MakeCpuBackend({.threads = 1});
  EXPECT_TRUE(backend.ok()) << backend.status();
  const auto forward = ForwardModel::Load(backend->get(), model.spec, model.weights, {});
  EXPECT_TRUE(forward.ok()) << forward.status();
  return forward.ok() ? (*forward)->shards()[0]->StepReadBytes() : 0;
}

TEST(StoredTensors, ExpertsTakeTheBytesThatAreAccounted) {
  const std::pair<const char*, const char*> cases[] = {{"mixtral-awq", "mixtral"},
                                                       {"mixtral-gptq4-actorder", "mixtral"},
                                                       {"qwen3-moe-gptq8", "qwen3-moe"},
                                                       {"deepseek-v2-packed4", "deepseek-v2"}};
  for (const auto& [name, source] : cases) {
    const GoldenModel model = LoadGoldenModel(name);
    const auto last = static_cast<uint32_t>(model.spec.layers.size()) - 1;
    uint64_t kept = 0;
    uint64_t floats = 0;
    for (const StageTensor& tensor :
         TensorsOf(model.spec, 0, last, false, false,
                   [&](const std::string& one) { return model.weights.Has(one); })) {
      if (!tensor.matrix.has_value()) {
        continue;
      }
      // Of experts, those that a row has.
      const MlpSpec& mlp = model.spec.layers.back().mlp;
      const bool expert = IsOfExperts(tensor.name);
      const uint64_t used = expert ? mlp.router.used : 1;
      const uint64_t all = expert ? mlp.experts : 1;
      kept += tensor.matrix->KeptBytes() * used / all;
      const uint64_t outputs = (tensor.matrix->outputs + 15) / 16 * 16;
      floats += outputs * tensor.matrix->inputs * 2 * used / all;
    }
    EXPECT_GT(kept, 0u) << name;
    EXPECT_EQ(StepBytes(model) - kept, StepBytes(LoadGoldenModel(source)) - floats) << name;
  }
}

std::string CaseName(const ::testing::TestParamInfo<StoredCase>& info) {
  std::string name = info.param.name;
  std::replace(name.begin(), name.end(), '-', '_');
  return name;
}

INSTANTIATE_TEST_SUITE_P(Formats, StoredTensorsTest, ::testing::ValuesIn(Cases()), CaseName);

}  // namespace
}  // namespace strata::testing
