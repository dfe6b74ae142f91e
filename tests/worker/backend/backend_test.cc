// What the CPU backend refuses and says of itself; and that a step takes no memory. What any
// backend does is in conformance.
#include "worker/backend/backend.h"

#include <gmock/gmock.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "common/platform/platform.h"
#include "common/status.h"
#include "tests/counting_allocator.h"
#include "tests/eventually.h"
#include "tests/worker/backend/models/made_up_model.h"
#include "tests/worker/backend/models/made_up_stage.h"
#include "worker/backend/cpu/cpu_backend.h"
#include "worker/backend/cpu/cpu_device.h"
#include "worker/backend/cpu/kernels/isa.h"
#include "worker/backend/kinds/make_backend.h"
#include "worker/backend/optional_backends.h"

namespace strata::testing {
namespace {

using ::testing::HasSubstr;

std::unique_ptr<Backend> Cpu(uint32_t threads = 2) {
  auto backend = MakeBackend("cpu", {.cpu = {.threads = threads}});
  EXPECT_TRUE(backend.ok()) << backend.status();
  return *std::move(backend);
}

TEST(BackendTest, SaysWhatItIs) {
  const auto backend = Cpu(3);
  EXPECT_EQ(backend->name(), "cpu");
  EXPECT_EQ(backend->numerics(), "cpu-2");
  EXPECT_EQ(backend->facts().threads, 3u);
  EXPECT_EQ(backend->facts().kind, cpu::MachineKernels().back()->isa);
  EXPECT_GE(Cpu(0)->facts().threads, 1u);
}

TEST(BackendTest, SaysWhereItsThreadsAre) {
  EXPECT_EQ(Cpu(2)->facts().placed, "not pinned: --pin off");
  const size_t cores = UsableTopology().cores.size();
  const auto on = MakeCpuBackend({.threads = 2, .pin = "on"});
  if (cores < 2) {
    EXPECT_TRUE(absl::IsInvalidArgument(on.status())) << on.status();
    return;
  }
  ASSERT_TRUE(on.ok()) << on.status();
  EXPECT_EQ(CpuDeviceOf(on->get())->places().pinned_cores.size(),
            1u);  // The first thread is the caller.
  EXPECT_EQ(CpuDeviceOf(on->get())->places().memory_nodes, 1u);
  EXPECT_THAT(CpuDeviceOf(on->get())->places().text, ::testing::StartsWith("pinned to core "));
  const auto more = MakeCpuBackend({.threads = static_cast<uint32_t>(cores + 1), .pin = "on"});
  EXPECT_THAT(Describe(more.status()), HasSubstr("--threads"));
}

TEST(BackendTest, AbsentBackendsSayHowToGetThem) {
  for (const char* const name : {"cuda", "mlx"}) {
    const auto backend = MakeBackend(name, {});
    if (backend.ok()) {
      continue;  // This build has it, and the machine its device.
    }
    EXPECT_EQ(backend.status().code(), absl::StatusCode::kUnimplemented);
    EXPECT_THAT(ReasonOf(backend.status()), ::testing::AnyOf("BACKEND_ABSENT", "DEVICE_ABSENT"));
    EXPECT_THAT(Describe(backend.status()), HasSubstr("--backend cpu"));
  }
  EXPECT_EQ(MakeBackend("tpu", {}).status().code(), absl::StatusCode::kInvalidArgument);
  const auto best = MakeBackend("auto", {});
  ASSERT_TRUE(best.ok()) << best.status();
  EXPECT_TRUE(MlxHasGpu() || (*best)->name() != "mlx");
}

TEST(BackendTest, AForcedInstructionSetIsUsedOrRefused) {
  for (const std::string& isa : cpu::MachineIsas()) {
    const auto backend = MakeCpuBackend({.threads = 1, .isa = isa});
    ASSERT_TRUE(backend.ok()) << backend.status();
    EXPECT_EQ((*backend)->facts().kind, isa);
  }
  const auto machine = cpu::MachineIsas();
  for (const std::string isa :
       {"avx2", "avxvnni", "avx512", "avx512vnni", "amx", "neon", "neondot", "sse9", "AVX2"}) {
    if (std::find(machine.begin(), machine.end(), isa) == machine.end()) {
      const auto refused = MakeCpuBackend({.threads = 1, .isa = isa});
      EXPECT_EQ(refused.status().code(), absl::StatusCode::kInvalidArgument) << isa;
      EXPECT_THAT(refused.status().message(), HasSubstr("scalar"));
    }
  }
}

TEST(BackendTest, RefusesByNameWhatItCannotCompute) {
  const MadeUpModel model({});
  const auto backend = Cpu();
  const auto refusal = [&](auto edit) {
    MadeUpStage stage = WholeModel(model);
    edit(stage.spec);
    const absl::Status status = backend->Supports(stage.spec);
    EXPECT_EQ(backend->Load(stage.spec, model, nullptr, nullptr).status().code(), status.code());
    return status;
  };
  EXPECT_TRUE(refusal([](StageSpec&) {}).ok());
  const auto expect = [&](const char* what, auto edit) {
    const absl::Status status = refusal(edit);
    EXPECT_EQ(status.code(), absl::StatusCode::kUnimplemented) << what;
    EXPECT_THAT(status.message(), HasSubstr(what));
  };
  expect("kv_lora_rank 24", [](StageSpec& s) {
    s.model.kv_groups[0] = {KvKind::kMla, 0};
    for (LayerSpec& layer : s.model.layers) {
      layer.attention.latent.rank = 24;
    }
  });
  const auto mixture = [](StageSpec& s) -> LayerSpec& {
    s.model.layers[0].mlp.experts = 8;
    s.model.layers[0].mlp.router.used = 2;
    return s.model.layers[0];
  };
  expect("experts without a norm",
         [&](StageSpec& s) { mixture(s).norm_places = NormPlaces::kAfter; });
  expect("llama_4_scaling_beta", [](StageSpec& s) {
    s.model.kv_groups[0] = {KvKind::kMla, 0};
    for (LayerSpec& layer : s.model.layers) {
      AttentionSpec& a = layer.attention;
      a.latent = {.rank = 32, .nope_dim = a.head_dim - 8, .rope_dim = 8, .value_dim = 8};
      a.kv_heads = 1;
      a.rope.rotary_dim = 8;
      a.query_growth = 0.1f;
      a.query_growth_every = 16;
    }
  });
  expect("bf16", [](StageSpec& s) { s.kv_dtype = v1::KV_DTYPE_BF16; });
}

#if defined(__linux__)
// Of this process's threads with that name.
std::vector<int> NicenessOf(const std::string& name) {
  std::vector<int> niceness;
  for (const auto& task : std::filesystem::directory_iterator("/proc/self/task")) {
    std::string comm;
    std::getline(std::ifstream(task.path() / "comm"), comm);
    if (comm == name) {
      const auto id = static_cast<id_t>(std::stoul(task.path().filename()));
      niceness.push_back(getpriority(PRIO_PROCESS, id));
    }
  }
  return niceness;
}

TEST(BackendTest, LoadingGivesWayToComputing) {
  if (UsableTopology().cores.empty()) {
    GTEST_SKIP() << "this platform library tells threads apart by nothing";
  }
  const MadeUpModel model({});
  const MadeUpStage stage = WholeModel(model);
  const int own = getpriority(PRIO_PROCESS, 0);
  const auto backend = Cpu(3);
  const std::vector<int> computing = {own, own};  // And whoever computes a step.
  const std::vector<int> loading(3, std::min(own + 5, 19));
  uint64_t calls = 0;
  const auto shard = backend->Load(stage.spec, model, nullptr, [&](uint64_t, uint64_t) {
    ++calls;
    // A thread that was just started has its name and niceness when it first runs.
    EXPECT_TRUE(Eventually([&] {
      return NicenessOf("strata-load") == loading && NicenessOf("strata-compute") == computing;
    }));
  });
  ASSERT_TRUE(shard.ok()) << shard.status();
  EXPECT_GT(calls, 0u);
  // Neither the caller, nor what it starts, keeps giving way.
  EXPECT_EQ(NicenessOf("strata-load"), std::vector<int>());
  EXPECT_EQ(NicenessOf("strata-compute"), computing);
  EXPECT_EQ(getpriority(PRIO_PROCESS, 0), own);
}
#endif

TEST(BackendTest, CountsItsMemory) {
  const MadeUpModel model({});
  const auto backend = Cpu();
  MadeUpStage stage = WholeModel(model);
  const auto bytes = [&] {
    return (*backend->Load(stage.spec, model, nullptr, nullptr))->MemoryBytes();
  };
  const uint64_t before = bytes();
  EXPECT_GT(before, uint64_t{40} * 37 * 2);
  stage.spec.kv_pages[0] += 100;
  // Two layers, two KV heads: K [24][16] and V [16][32] in float16.
  EXPECT_EQ(bytes() - before, 100u * 2 * 2 * (24 * 16 + 16 * 32) * 2);
}

TEST(BackendTest, ReadsEveryMatrixAndNormOnceAStep) {
  const MadeUpModel model({});
  const MadeUpStage stage = WholeModel(model);
  // Outputs in panels of 16, inputs of 2 bytes: of queries, keys, values; what goes out; gate, up;
  // down. Norms and the head's one are floats.
  const uint64_t layer =
      uint64_t{2} * ((144 + 2 * 48) * 40 + 48 * 144 + 2 * 64 * 40 + 48 * 50) + uint64_t{2} * 40 * 4;
  const uint64_t head = uint64_t{2} * 48 * 40 + 40 * 4;
  EXPECT_EQ((*Cpu()->Load(stage.spec, model, nullptr, nullptr))->StepReadBytes(), 2 * layer + head);
}

TEST(BackendTest, CountsAllExpertsButReadsOnlyThoseOfARow) {
  const auto load = [](uint32_t experts, uint32_t used, uint32_t rows) {
    const MadeUpModel model({.experts = experts, .router = {.used = used}});
    MadeUpStage stage = WholeModel(model);
    stage.spec.max_batch_tokens = rows;
    return *Cpu()->Load(stage.spec, model, nullptr, nullptr);
  };
  // An expert is three matrices of 40 inputs or outputs and 50 of the other, of 2 bytes.
  const uint64_t expert = uint64_t{2} * (2 * 64 * 40 + 48 * 50);
  const uint64_t router = 40 * 16 * 2;
  EXPECT_EQ(load(12, 2, 32)->StepReadBytes() - load(10, 2, 32)->StepReadBytes(), 0u);
  EXPECT_EQ(load(12, 4, 32)->StepReadBytes() - load(12, 1, 32)->StepReadBytes(), 3 * expert);
  EXPECT_EQ(load(20, 2, 32)->StepReadBytes() - load(12, 2, 32)->StepReadBytes(), router);
  const uint64_t more = load(12, 2, 32)->MemoryBytes() - load(10, 2, 32)->MemoryBytes();
  EXPECT_GE(more, 2 * expert);
  EXPECT_LT(more, 2 * expert + 256);  // And what counts them.
  // Buffers are for each row and expert of it.
  const auto scratch = [&](uint32_t used) {
    return load(12, used, 64)->MemoryBytes() - load(12, used, 32)->MemoryBytes();
  };
  const uint64_t place = sizeof(float) * (50 + 2 * 64 + 48);
  EXPECT_GE(scratch(6) - scratch(3), 32 * 3 * place);
}

class StepTest : public ::testing::TestWithParam<MadeUpShape> {};

std::vector<MadeUpShape> StepShapes() {
  return {{},
          {.experts = 9, .router = {.used = 4}},
          {.latent = {.rank = 16, .query_rank = 8, .nope_dim = 10, .rope_dim = 8, .value_dim = 9}}};
}

std::string StepShapeName(const ::testing::TestParamInfo<MadeUpShape>& info) {
  constexpr const char* kNames[] = {"Dense", "Experts", "Latents"};
  return kNames[info.index];
}

INSTANTIATE_TEST_SUITE_P(Shapes, StepTest, ::testing::ValuesIn(StepShapes()), StepShapeName);

TEST_P(StepTest, AllocatesNothing) {
  if (!CountsAllocations()) {
    GTEST_SKIP() << "not with a sanitizer";
  }
  const MadeUpModel model(GetParam());
  const MadeUpStage stage = WholeModel(model);
  const auto backend = Cpu(3);
  const auto shard = *backend->Load(stage.spec, model, nullptr, nullptr);
  const std::vector<uint32_t> ids(20, 3);
  const std::vector<PageId> pages = {7, 3};
  const std::vector<PageId> others = {1, 2};
  const std::vector<PageTableView> tables = {{0, pages}};
  const std::vector<PageTableView> other_tables = {{0, others}};
  const std::vector<BatchItem> items = {{0, 19, 0, tables}, {19, 1, 0, other_tables}};
  const std::vector<uint32_t> wanted = {18, 19};
  std::vector<float> residual(20 * model.spec().hidden);
  std::vector<float> logits(2 * model.spec().vocab);
  const uint64_t before = Allocations();
  bool ok = shard->Begin({20, ids, items}).ok() && shard->Embed().ok();
  for (uint32_t layer = 0; layer < 2; ++layer) {
    ok = ok && shard->Attention(layer).ok() && shard->Mlp(layer).ok();
  }
  ok = ok && shard->ReadResidual(residual).ok() && shard->SetResidual(residual).ok() &&
       shard->Head(wanted).ok() && shard->ReadLogits(logits).ok() && shard->CopyPage(0, 1, 5).ok();
  ok = ok && shard->Begin({20, ids, items}).ok() && shard->Embed().ok() &&
       shard->AttentionOfSome(1, wanted).ok() && shard->Mlp(1).ok();
  EXPECT_EQ(Allocations(), before);
  EXPECT_TRUE(ok);
}

TEST(BackendTest, AReadProbeMeasuresWhenItReads) {
  const std::unique_ptr<Backend> backend = Cpu(2);
  const std::unique_ptr<ReadProbe> probe =
      CpuDeviceOf(backend.get())->NewReadProbe(uint64_t{64} << 20);
  EXPECT_EQ(probe->MedianBytesPerSecond(), 0);
  probe->Read();
  EXPECT_GT(probe->MedianBytesPerSecond(), 0);
  EXPECT_LT(probe->MedianBytesPerSecond(), 1e14);
}

}  // namespace
}  // namespace strata::testing
