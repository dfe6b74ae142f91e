#include "worker/backend/cpu/shard/cpu_ranks.h"

#include <iterator>
#include <utility>

#include "common/clock.h"
#include "common/status.h"
#include "worker/backend/ranked/ranked_shard.h"
#include "worker/collective/thread_collective.h"

namespace strata::cpu {
namespace {

// No part of a step takes as long on a machine that still computes.
constexpr milliseconds kRankTimeout(60'000);

}  // namespace

absl::StatusOr<std::unique_ptr<Shard>> LoadOverRanks(
    const StageSpec& spec, const ShardRanks& ranks, const TensorSource& source, PackedStore* packed,
    const LoadProgressFn& progress, const Kernels* kernels, const ShardLoading& how) {
  static const SystemClock clock;
  ASSIGN_OR_RETURN(std::vector<std::unique_ptr<CpuShard>> shards,
                   CpuShard::CreateRanks(spec, SplitOutputs(spec.model, ranks.shares), source,
                                         packed, progress, kernels, how, ranks.pools));
  const auto count = static_cast<uint32_t>(shards.size());
  std::vector<std::unique_ptr<RankShard>> of_ranks(std::make_move_iterator(shards.begin()),
                                                   std::make_move_iterator(shards.end()));
  return RankedShard::Create(std::move(of_ranks),
                             {.join =
                                  [count, spins = ranks.own_cores] {
                                    return MakeThreadCollectives(
                                        count,
                                        {.timeout = kRankTimeout, .clock = &clock, .spins = spins});
                                  },
                              .own_cores = ranks.own_cores});
}

}  // namespace strata::cpu
