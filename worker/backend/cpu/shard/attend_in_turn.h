// The order in which one thread attends its units, and what it knows of those that follow.
#ifndef STRATA_WORKER_BACKEND_CPU_SHARD_ATTEND_IN_TURN_H_
#define STRATA_WORKER_BACKEND_CPU_SHARD_ATTEND_IN_TURN_H_

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>

#include "worker/backend/cpu/kernels/kernels.h"

namespace strata::cpu {

// Calls attend(args) for the units [begin, end) of `count` that have work, in order, each after
// before(unit). args_of(unit) gives its arguments, or nothing where there is no work; it is asked
// some units ahead, once for each unit of a call and perhaps for the one behind `end`, so that the
// arguments name up to three calls that follow (AttendArgs::next), whose pages are prefetched
// meanwhile. `prefetched` is the calling thread's, of all its calls of one attention.
template <typename ArgsOf, typename Before, typename Attend>
void AttendInTurn(size_t begin, size_t end, size_t count, PrefetchedPages* prefetched,
                  const ArgsOf& args_of, const Before& before, const Attend& attend) {
  // The calls that are known, in a ring: what a short one leaves room for is of the ones behind it.
  std::array<AttendArgs, 4> calls;
  size_t known = 0;
  size_t attended = 0;
  // A thread goes on where it ended, unless another one helped it. Where it helps another it goes
  // backwards.
  const bool helps = prefetched->turn > begin + 1;
  const size_t last = helps ? end : std::min(end + 1, count);
  if (helps) {
    *prefetched = PrefetchedPages{};
  }
  for (size_t unit = begin;; ++attended) {
    for (; known - attended < calls.size() && unit < last; ++unit) {
      const std::optional<AttendArgs> args = args_of(static_cast<uint32_t>(unit));
      if (args.has_value()) {
        AttendArgs& call = calls[known % calls.size()];
        call = *args;
        call.turn = static_cast<uint32_t>(unit) + 1;
        call.prefetched = prefetched;
        if (known > attended) {
          calls[(known - 1) % calls.size()].next = &call;
        }
        ++known;
      }
    }
    const AttendArgs& call = calls[attended % calls.size()];
    if (attended == known || call.turn > end) {
      return;
    }
    before(call.turn - 1);
    attend(call);
  }
}

}  // namespace strata::cpu

#endif  // STRATA_WORKER_BACKEND_CPU_SHARD_ATTEND_IN_TURN_H_
