// What a stage is planned to take besides weights and KV holds what the CPU's shards take.
#include <gtest/gtest.h>

#include "common/footprint/footprint.h"
#include "worker/backend/cpu/kernels/isa.h"
#include "worker/backend/cpu/shard/scratch_sizes.h"

namespace strata {
namespace {

ModelSpec Model(uint32_t hidden, uint32_t heads, const MlpSpec& mlp) {
  ModelSpec model;
  model.hidden = hidden;
  model.vocab = 1000;
  model.kv_groups.resize(1);
  model.layers.resize(2);
  for (LayerSpec& layer : model.layers) {
    layer.attention.heads = heads;
    layer.attention.kv_heads = 8;
    layer.attention.head_dim = 128;
    layer.mlp = mlp;
  }
  return model;
}

TEST(CpuFootprint, HoldsTheBuffersOfAShardOfUpTo64Threads) {
  MlpSpec wide;
  wide.ffn = 14336;
  MlpSpec narrow;
  narrow.ffn = 2816;
  MlpSpec mixture;
  mixture.ffn = 768;
  mixture.experts = 64;
  mixture.router.used = 8;
  MlpSpec shared = mixture;
  shared.shared_ffn = 6144;
  for (const ModelSpec& model : {Model(4096, 32, wide), Model(1024, 64, narrow),
                                 Model(2048, 32, mixture), Model(2048, 16, shared)}) {
    for (const uint32_t rows : {1u, 4u, 16u, 512u}) {
      const uint64_t planned = CpuFootprint().BufferBytes(model, rows, false, 4096);
      for (const v1::Activations activations : {v1::ACTIVATIONS_INT8, v1::ACTIVATIONS_F32}) {
        StageSpec spec;
        spec.model = model;
        spec.last_layer = 1;
        spec.context = 4096;
        spec.activations = activations;
        spec.max_batch_tokens = rows;
        spec.max_batch_items = rows;
        for (const cpu::Kernels* kernels : cpu::MachineKernels()) {
          for (const uint32_t threads : {1u, 8u, 64u}) {
            EXPECT_LE(cpu::ScratchSizes(spec, *kernels, threads).Bytes(), planned)
                << kernels->isa << ", hidden " << model.hidden << ", " << rows << " rows, "
                << threads << " threads";
          }
        }
      }
    }
  }
}

}  // namespace
}  // namespace strata
