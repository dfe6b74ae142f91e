#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "tests/worker/backend/conformance/conforming_backends.h"
#include "tests/worker/ranks/followed_stage.h"
#include "worker/backend/kinds/make_backend.h"

namespace strata::testing {

// A new kind of backend is one line here.
std::vector<BackendKind> AllKinds() {
  const auto named = [](std::string name) {
    return [name = std::move(name)] { return MakeBackend(name, {.cpu = {.threads = 2}}); };
  };
  const auto over = [](std::vector<CpuRank> ranks) {
    return [ranks = std::move(ranks)] { return MakeBackend("cpu", {.cpu = {.ranks = ranks}}); };
  };
  // A stage over ranks, equal ones and unequal ones; most models have two KV heads, fewer than some
  // have ranks.
  // The same over workers, which are of this process here.
  const auto followed = [](std::vector<double> shares, std::function<ChannelPair()> pair) {
    return [=] { return MakeFollowedBackend({.shares = shares, .pair = pair}); };
  };
  const auto memory = [] { return MemoryPair(size_t{1} << 16); };
  return {{"cpu", named("cpu"), &CpuFootprint()},
          {"cpu_ranks2", over({{}, {}}), nullptr},
          {"cpu_ranks3", over({{.threads = 2, .share = 2}, {}, {}}), nullptr},
          {"cpu_ranks4", over({{}, {.share = 1.5}, {}, {}}), nullptr},
          {"cpu_followers2", followed({1, 1}, SocketPair), nullptr},
          {"cpu_followers3", followed({2, 1, 1}, SocketPair), nullptr},
          {"cpu_followers4", followed({1, 1.5, 1, 1}, memory), nullptr},
          {"cuda", named("cuda"), &CudaFootprint()},
          {"mlx", named("mlx"), &MlxFootprint()}};
}

}  // namespace strata::testing
