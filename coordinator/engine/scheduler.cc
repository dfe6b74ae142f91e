#include "coordinator/engine/scheduler.h"

#include <algorithm>

namespace strata {
namespace {

uint32_t CeilDivide(uint64_t a, uint64_t b) { return static_cast<uint32_t>((a + b - 1) / b); }

// Room that is left in the step.
struct Room {
  uint32_t items = 0;
  uint32_t rows = 0;
  uint32_t logits_rows = 0;

  // The most rows, up to `wanted`, that `session` may have.
  uint32_t Rows(const ReadySession& session, uint32_t wanted) const {
    const uint32_t most = session.wants_logits ? std::min(rows, logits_rows) : rows;
    return items == 0 ? 0 : std::min(wanted, most);
  }
  void Take(const ReadySession& session, uint32_t taken) {
    --items;
    rows -= taken;
    logits_rows -= session.wants_logits ? taken : 0;
  }
};

}  // namespace

std::vector<ScheduledItem> ScheduleStep(const SchedulerSnapshot& snapshot) {
  std::vector<const ReadySession*> decode;
  uint64_t prefill_rows = 0;
  for (const ReadySession& session : snapshot.ready) {
    if (session.decoding) {
      decode.push_back(&session);
    } else {
      prefill_rows += session.pending;
    }
  }
  const uint32_t share = CeilDivide(snapshot.decoding, snapshot.stages);
  const bool stages_busy = snapshot.steps_in_flight >= snapshot.stages;
  if (stages_busy && snapshot.decoding > 0 && (decode.empty() || decode.size() < share)) {
    return {};
  }
  const uint32_t steps_to_fill = stages_busy ? 1 : snapshot.stages - snapshot.steps_in_flight;

  std::vector<ScheduledItem> items;
  Room room{snapshot.max_items, snapshot.token_budget, snapshot.max_logits_rows};
  std::stable_sort(decode.begin(), decode.end(), [](const ReadySession* a, const ReadySession* b) {
    return a->last_step < b->last_step;
  });
  decode.resize(
      std::min<size_t>(decode.size(), std::min(share, CeilDivide(decode.size(), steps_to_fill))));
  for (const ReadySession* session : decode) {
    if (room.Rows(*session, 1) == 1) {
      room.Take(*session, 1);
      items.push_back({session->id, 1});
    }
  }

  uint32_t allowance = std::max(kMinPrefillRows, CeilDivide(prefill_rows, steps_to_fill));
  for (const ReadySession& session : snapshot.ready) {
    if (session.decoding) {
      continue;
    }
    const uint32_t rows = room.Rows(session, std::min(session.pending, allowance));
    if (rows > 0) {
      room.Take(session, rows);
      allowance -= rows;
      items.push_back({session.id, rows});
    }
  }
  return items;
}

}  // namespace strata
