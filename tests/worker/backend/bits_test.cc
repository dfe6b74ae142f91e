// tests/golden/bits.json: a SHA-256 of the float32 logits of every golden case, by numerics class.
// Every machine and instruction set must reproduce it. A change that alters it changes what users
// were promised to be reproducible: raise the numerics version ("cpu-2" in cpu_backend.cc), say why
// in the commit, then write the file anew with
//   STRATA_UPDATE_BITS=1 STRATA_SOURCE=. build/tests/cpu_backend_test --gtest_filter='Bits*'
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>

#include "common/model/numerics_class.h"
#include "nlohmann/json.hpp"
#include "tests/worker/backend/cpu_backend.h"
#include "tests/worker/backend/models/block_model.h"
#include "tests/worker/backend/models/forward.h"
#include "tests/worker/backend/models/golden_digests.h"
#include "tests/worker/backend/models/golden_model.h"
#include "tests/worker/backend/models/made_up_model.h"
#include "worker/backend/cpu/kernels/isa.h"

namespace strata::testing {
namespace {

using Bits = GoldenDigests;

void AddModel(const std::string& isa, const GoldenModel& model, const GoldenFormat& format,
              v1::KvDtype kv, Bits* bits) {
  const std::unique_ptr<Backend> backend = CpuBackendOn(isa, 0);
  ForwardOptions options;
  options.kv_dtype = kv;
  options.quantize = format.quantize;
  options.activations = format.activations;
  options.context = std::min(options.context, model.spec.context);
  auto forward = ForwardModel::Load(backend.get(), model.spec, model.weights, options);
  ASSERT_TRUE(forward.ok()) << forward.status();
  const std::string name = ClassOf(backend->numerics(), model, format, kv);
  for (const GoldenCase& one : model.cases) {
    const auto rows = (*forward)->Run(one.AllIds(), 0, one.rotary_variant, one.embeddings);
    ASSERT_TRUE(rows.ok()) << rows.status();
    (*bits)[name][model.name + "/" + one.name] = DigestOf(LogitsOf(*rows));
  }
}

// What no golden model has yet: windows beside full layers, soft-caps, GELU, past two spans.
void AddMadeUp(const std::string& isa, v1::KvDtype kv, Bits* bits) {
  const MadeUpModel model({.layers = 4,
                           .norm = NormKind::kRmsOnePlus,
                           .windows = {20, 0, 600},
                           .soft_cap = 1.5f,
                           .final_soft_cap = 3.0f,
                           .activation = ActivationKind::kGeluTanh});
  const std::unique_ptr<Backend> backend = CpuBackendOn(isa, 0);
  auto forward = ForwardModel::Load(backend.get(), model.spec(), model, {.kv_dtype = kv});
  ASSERT_TRUE(forward.ok()) << forward.status();
  std::vector<uint32_t> ids;
  for (uint32_t i = 0; i < 1200; ++i) {
    ids.push_back((i * i + 3 * i) % model.spec().vocab);
  }
  const auto rows = (*forward)->Run(ids);
  ASSERT_TRUE(rows.ok()) << rows.status();
  const std::string name = NumericsClassName(backend->numerics(), "bf16", "bf16", "f32",
                                             kv == v1::KV_DTYPE_F32 ? "f32" : "f16");
  (*bits)[name]["made-up/windows"] = DigestOf(LogitsOf(*rows));
}

// More experts than a panel has outputs, of widths that fill none, beside a dense layer.
void AddMadeUpMixture(const std::string& isa, const GoldenFormat& format, Bits* bits) {
  const MadeUpModel model(
      {.layers = 3, .seed = 11, .experts = 37, .router = {.used = 6, .renormalize = true}});
  const std::unique_ptr<Backend> backend = CpuBackendOn(isa, 0);
  ForwardOptions options;
  options.quantize = format.quantize;
  options.activations = format.activations;
  auto forward = ForwardModel::Load(backend.get(), model.spec(), model, options);
  ASSERT_TRUE(forward.ok()) << forward.status();
  std::vector<uint32_t> ids;
  for (uint32_t i = 0; i < 150; ++i) {
    ids.push_back((i * i + 5 * i) % model.spec().vocab);
  }
  const auto rows = (*forward)->Run(ids);
  ASSERT_TRUE(rows.ok()) << rows.status();
  (*bits)["made-up"][format.Name()] = DigestOf(LogitsOf(*rows));
}

// GGUF's formats of blocks, of which not all have golden models.
void AddBlocks(const std::string& isa, const BlockCase& one, Bits* bits) {
  const BlockModel model(one, false, false);
  const std::unique_ptr<Backend> backend = CpuBackendOn(isa, 0);
  auto forward =
      ForwardModel::Load(backend.get(), model.spec(), model, {.activations = v1::ACTIVATIONS_INT8});
  ASSERT_TRUE(forward.ok()) << forward.status();
  std::vector<uint32_t> ids;
  for (uint32_t i = 0; i < 40; ++i) {
    ids.push_back((i * i + 7 * i) % model.spec().vocab);
  }
  const auto rows = (*forward)->Run(ids);
  ASSERT_TRUE(rows.ok()) << rows.status();
  (*bits)["made-up"][std::string("blocks ") + DtypeName(one.dtype)] = DigestOf(LogitsOf(*rows));
}

Bits Compute(const std::string& isa) {
  Bits bits;
  for (const v1::KvDtype kv : {v1::KV_DTYPE_F32, v1::KV_DTYPE_F16}) {
    AddMadeUp(isa, kv, &bits);
  }
  for (const v1::Quantize quantize : {v1::QUANTIZE_NONE, v1::QUANTIZE_INT8, v1::QUANTIZE_INT4}) {
    const bool floats = quantize == v1::QUANTIZE_NONE;
    AddMadeUpMixture(
        isa, {"experts", quantize, floats ? v1::ACTIVATIONS_F32 : v1::ACTIVATIONS_INT8}, &bits);
  }
  for (const BlockCase& one : BlockCases()) {
    AddBlocks(isa, one, &bits);
  }
  for (const GoldenFormat& format : GoldenFormats()) {
    const GoldenModel model = LoadGoldenModel(format.model);
    for (const v1::KvDtype kv : {v1::KV_DTYPE_F32, v1::KV_DTYPE_F16}) {
      AddModel(isa, model, format, kv, &bits);
    }
  }
  return bits;
}

TEST(BitsTest, EveryInstructionSetReproducesTheGoldenLogits) {
  if (std::getenv("STRATA_UPDATE_BITS") != nullptr) {
    std::ofstream(GoldenDigestsPath()) << nlohmann::json(Compute("scalar")).dump(1) << "\n";
  }
  const Bits expected = ReadGoldenDigests();
  ASSERT_FALSE(expected.empty());
  for (const std::string& isa : cpu::MachineIsas()) {
    EXPECT_EQ(Compute(isa), expected) << isa;
  }
}

}  // namespace
}  // namespace strata::testing
