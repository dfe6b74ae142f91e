#include "coordinator/engine/scheduler.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <utility>

#include "coordinator/engine/draft_length.h"
#include "coordinator/engine/drafter.h"
#include "coordinator/engine/step_pace.h"

namespace strata {
namespace {

// 0 where `b` is larger.
uint32_t SaturatingSub(uint32_t a, uint32_t b) { return a - std::min(a, b); }

uint32_t CeilDivide(uint64_t a, uint64_t b) { return static_cast<uint32_t>((a + b - 1) / b); }

// Sessions change their micro-batch for this share of its time.
constexpr double kLeastGain = 0.05;

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

// The order in which sessions that have prompts to compute are given rows: by priority, then the
// tenant that was served least, then by age.
class PrefillOrder {
 public:
  explicit PrefillOrder(const SchedulerSnapshot& snapshot) : served_(snapshot.served) {
    for (auto it = snapshot.ready.rbegin(); it != snapshot.ready.rend(); ++it) {
      if (!it->decoding) {
        waiting_[-int64_t{it->priority}][it->tenant].push_back(&*it);  // The next one is the last.
        served_.resize(std::max<size_t>(served_.size(), it->tenant + 1));
      }
    }
  }

  const ReadySession* Next() {
    if (waiting_.empty()) {
      return nullptr;
    }
    auto& tenants = waiting_.begin()->second;
    const auto least =
        std::min_element(tenants.begin(), tenants.end(),
                         [this](const auto& a, const auto& b) { return Key(a) < Key(b); });
    const ReadySession* session = least->second.back();
    least->second.pop_back();
    if (least->second.empty()) {
      tenants.erase(least);
    }
    if (tenants.empty()) {
      waiting_.erase(waiting_.begin());
    }
    return session;
  }
  void Serve(const ReadySession& session, uint32_t rows) { served_[session.tenant] += rows; }

 private:
  using Sessions = std::vector<const ReadySession*>;
  std::pair<uint64_t, uint64_t> Key(const std::pair<const uint32_t, Sessions>& tenant) const {
    return {served_[tenant.first], tenant.second.back()->id};
  }

  std::vector<uint64_t> served_;
  std::map<int64_t, std::map<uint32_t, Sessions>> waiting_;
};

// Fills one step.
class StepFiller {
 public:
  explicit StepFiller(const SchedulerSnapshot& snapshot)
      : snapshot_(snapshot),
        pace_(PaceOf(snapshot)),
        room_{snapshot.max_items, snapshot.token_budget, snapshot.max_logits_rows} {
    if (!pace_.prompts_apart) {
      LeaveRoomForWaves();
    }
    for (const ReadySession& session : snapshot.ready) {
      if (session.decoding) {
        decode_.push_back(&session);
      } else {
        prompts_.rows += session.pending;
        prompts_.attended += Attended(session.position, session.pending);
      }
    }
    share_ = CeilDivide(snapshot.decoding, pace_.batches);
    open_slots_ =
        snapshot.steps_in_flight < pace_.slots ? pace_.slots - snapshot.steps_in_flight : 0;
    if (pace_.prompts_apart && decode_.size() < share_ && snapshot.steps_in_flight > 0) {
      decode_.clear();  // The others are under way.
    }
  }

  // The stages have work, and a step that is sent later has a full micro-batch, or is one of decode
  // items whose turn it is.
  bool ShouldWait() const {
    if (snapshot_.decoding == 0) {
      return false;
    }
    if (snapshot_.masks_awaited > 0 && decode_.size() < share_) {
      return true;
    }
    if (pace_.prompts_apart && decode_.empty() && snapshot_.steps_in_flight > 0 &&
        snapshot_.last_prefill_step > snapshot_.last_decode_step) {
      return true;
    }
    return open_slots_ == 0 && (decode_.empty() || decode_.size() < share_);
  }

  ScheduledStep Fill() {
    ScheduledStep step = FillWithKnown();
    AddDrafts(&step);
    return step;
  }

  // A step ahead of a result, where it may have one.
  ScheduledStep FillAhead() {
    const std::optional<AheadSession>& ahead = snapshot_.ahead;
    if (!ahead.has_value() || !snapshot_.ready.empty() || snapshot_.decoding != 1 ||
        snapshot_.wave_items > 0 || snapshot_.steps_in_flight == 0 ||
        snapshot_.steps_in_flight >= std::min(snapshot_.stages, kMostSteps) ||
        std::pow(ahead->draft_chance, ahead->guesses + 1) < kLeastAheadChance) {
      return {};
    }
    const ReadySession session{.id = ahead->id,
                               .position = ahead->position,
                               .drafts = ahead->drafts,
                               .draft_chance = ahead->draft_chance};
    Take(session, 1);
    taken_.push_back(&session);
    ScheduledStep step{std::move(items_), 0, WaveMove::kNone};
    step.items.front().ahead = true;
    AddDrafts(&step);
    return step;
  }

 private:
  ScheduledStep FillWithKnown() {
    AddDecode();
    if (!pace_.prompts_apart && snapshot_.wave_items > 0) {
      return {std::move(items_), 0, WaveMove::kFinish};
    }
    if (!pace_.prompts_apart) {
      AddPrefill();
      return {std::move(items_), 0, WaveMove::kNone};
    }
    if (!items_.empty()) {
      return {std::move(items_), 0, WaveMove::kNone};
    }
    const bool waves = snapshot_.wave_items > 0;
    const WaveMove move = waves ? WaveMove::kOn : WaveMove::kNone;
    if (waves && !pace_.may_spread) {
      return {{}, 0, move};
    }
    LeaveRoomForWaves();
    AddPrefill();
    const uint32_t slices = SlicesInTime(snapshot_, work_, pace_);
    return {std::move(items_), waves || slices > 1 ? slices : 0, move};
  }

  // Of the decode items, which are the first.
  void AddDrafts(ScheduledStep* step) const {
    std::vector<DraftOffer> offers;
    for (const ReadySession* session : taken_) {
      offers.push_back(
          {session->drafts, session->draft_chance, session->draft_won, session->certain_drafts});
    }
    const double attended = snapshot_.decoding_attended / std::max(1u, snapshot_.decoding);
    const auto cycle_ms = [&](uint32_t rows) {
      return CycleMs(snapshot_, pace_.batches,
                     {work_.rows + rows, work_.attended + rows * attended});
    };
    const std::vector<uint32_t> lengths = DraftLengths(offers, room_.rows, cycle_ms);
    uint32_t all = 0;
    for (size_t i = 0; i < lengths.size(); ++i) {
      step->items[i].drafts = lengths[i];
      all += lengths[i];
    }
    if (const double plain_ms = all > 0 ? cycle_ms(0) : 0; plain_ms > 0) {
      step->slowdown = cycle_ms(all) / plain_ms;
    }
  }

  // Those under way are in the step too.
  void LeaveRoomForWaves() {
    room_.items = SaturatingSub(room_.items, snapshot_.wave_items);
    room_.rows = SaturatingSub(room_.rows, snapshot_.wave_rows);
  }

  // What is kept free of decode items while prompts wait. Where there is room for one only, it is
  // the turn of those whose last one is longer ago.
  Room ReservedForPrompts() const {
    if (prompts_.rows == 0 || pace_.prompts_apart || snapshot_.wave_items > 0) {
      return {};
    }
    const bool turn = snapshot_.last_prefill_step <= snapshot_.last_decode_step;
    auto reserve = [turn](uint32_t limit) {
      return limit == 1 ? (turn ? 1 : 0) : std::max(1u, limit / 8);
    };
    return {reserve(room_.items), reserve(room_.rows), reserve(room_.logits_rows)};
  }

  // What a decode item adds to a micro-batch, on the stage that is slowest for an average one.
  double ItemMs(double attended) const { return row_ms_ + attended * attended_ms_; }

  void PriceItems() {
    const StepWork work{share_, snapshot_.decoding_attended / pace_.batches};
    double slowest = 0;
    for (const StageCost& stage : snapshot_.costs) {
      const double ms = stage.Ms(work);
      if (ms > slowest) {
        slowest = ms;
        row_ms_ = stage.Ms({share_ + 1, work.attended}) - ms;
        attended_ms_ = stage.attended_ms;
      }
    }
  }

  // Keeps the sessions that go into one of so many even steps. They are handed out by their cost,
  // from the first step to the last and back again.
  void KeepEvenShare(size_t steps) {
    std::vector<const ReadySession*> by_cost = decode_;
    std::stable_sort(
        by_cost.begin(), by_cost.end(),
        [](const ReadySession* a, const ReadySession* b) { return a->position > b->position; });
    decode_.clear();
    for (size_t i = 0; i < by_cost.size(); ++i) {
      const size_t there_and_back = i % (2 * steps);
      if (there_and_back == 0 || there_and_back + 1 == 2 * steps) {
        decode_.push_back(by_cost[i]);
      }
    }
    SortByTurn();
  }

  // A micro-batch with longer contexts than the others leaves one session to the next of them,
  // which leaves it another one in return, if that makes them more even: the slowest one sets the
  // pace. Never a session that was left before.
  void LeaveOneToTheOthers() {
    const uint64_t newest = decode_.back()->last_step;
    const auto others = snapshot_.decoding - static_cast<double>(decode_.size());
    double here_ms = 0;
    double attended = 0;
    for (const ReadySession* session : decode_) {
      here_ms += ItemMs(session->position + 1.0);
      attended += session->position + 1.0;
    }
    const double other_ms = ItemMs((snapshot_.decoding_attended - attended) / others);
    const double factor = 1 + 1.0 / (pace_.batches - 1);
    const double excess = here_ms - other_ms * others / (pace_.batches - 1);
    double best = excess - kLeastGain * SlowestMs(snapshot_, {share_, attended});
    auto leave = decode_.end();
    for (auto it = decode_.begin() + 1; it != decode_.end(); ++it) {
      const double after = std::abs(excess - (ItemMs((*it)->position + 1.0) - other_ms) * factor);
      if ((*it)->last_step == newest && after < best) {
        best = after;
        leave = it;
      }
    }
    if (leave != decode_.end()) {
      decode_.erase(leave);
    }
  }

  void SortByTurn() {
    std::stable_sort(
        decode_.begin(), decode_.end(),
        [](const ReadySession* a, const ReadySession* b) { return a->last_step < b->last_step; });
  }

  void AddDecode() {
    PriceItems();
    SortByTurn();
    // Those of one micro-batch stay together, however many steps might be sent.
    const uint32_t smallest = std::max(1u, snapshot_.decoding / pace_.batches);
    const auto ready = std::max(1u, static_cast<uint32_t>(decode_.size()) / smallest);
    const size_t steps = std::clamp(open_slots_, 1u, std::min(ready, pace_.batches));
    const size_t most = share_ * steps;
    if (steps > 1) {
      decode_.resize(std::min(decode_.size(), most));
      KeepEvenShare(steps);
    } else if (decode_.size() > most) {
      decode_.resize(most);
    } else if (decode_.size() > 1 && pace_.batches > 1 && snapshot_.decoding > decode_.size()) {
      LeaveOneToTheOthers();
    }
    const Room reserved = ReservedForPrompts();
    Room room{room_.items - reserved.items, room_.rows - reserved.rows,
              room_.logits_rows - reserved.logits_rows};
    for (const ReadySession* session : decode_) {
      if (room.Rows(*session, 1) == 1) {
        room.Take(*session, 1);
        Take(*session, 1);
        taken_.push_back(session);
      }
    }
  }

  void AddPrefill() {
    const uint32_t fill_rows = RowsToFill(snapshot_, prompts_);
    uint32_t allowance =
        std::min(fill_rows, std::max(std::min(fill_rows, kMinPrefillRows),
                                     CeilDivide(prompts_.rows, std::max(1u, open_slots_))));
    limit_ms_ = pace_.step_ms;
    if (pace_.prompts_apart) {
      allowance = std::min(prompts_.rows, pace_.most_rows);  // There is one such step a cycle.
    }
    if (!pace_.prompts_apart && prompts_.rows > allowance && !snapshot_.costs.empty()) {
      // Parts of equal time, not of equal rows: later ones attend further.
      const StepWork even{allowance, prompts_.attended / prompts_.rows * allowance};
      limit_ms_ = std::min(limit_ms_, SlowestMs(snapshot_, work_) + SlowestMs(snapshot_, even));
      allowance *= 2;
    }
    PrefillOrder order(snapshot_);
    uint32_t taken = 0;
    while (taken < allowance) {
      const ReadySession* session = order.Next();
      if (session == nullptr) {
        return;
      }
      const uint32_t wanted = room_.Rows(*session, std::min(session->pending, allowance - taken));
      const uint32_t least = taken == 0 ? std::min(wanted, 1u) : 0;  // Whatever it takes.
      const uint32_t rows =
          std::max(least, RowsInTime(snapshot_, work_, session->position, wanted, limit_ms_));
      if (rows > 0) {
        Take(*session, rows);
        order.Serve(*session, rows);
        taken += rows;
      }
      if (rows < wanted) {
        return;
      }
    }
  }

  void Take(const ReadySession& session, uint32_t rows) {
    room_.Take(session, rows);
    work_.rows += rows;
    work_.attended += Attended(session.position, rows);
    items_.push_back({session.id, rows});
  }

  const SchedulerSnapshot& snapshot_;
  const StepPace pace_;
  Room room_;
  std::vector<const ReadySession*> decode_;
  std::vector<const ReadySession*> taken_;  // Those of them that are in the step.
  StepWork prompts_;                        // All that is ready of them.
  uint32_t share_ = 0;                      // Sessions that decode, of one micro-batch.
  uint32_t open_slots_ = 0;                 // Steps that are to be sent until it is better to wait.
  StepWork work_;                           // Of the items so far.
  double row_ms_ = 0;                       // ItemMs
  double attended_ms_ = 0;
  double limit_ms_ = 0;
  std::vector<ScheduledItem> items_;
};

}  // namespace

ScheduledStep ScheduleStep(const SchedulerSnapshot& snapshot) {
  StepFiller filler(snapshot);
  ScheduledStep step = filler.ShouldWait() ? ScheduledStep() : filler.Fill();
  return step.empty() ? StepFiller(snapshot).FillAhead() : step;
}

}  // namespace strata
