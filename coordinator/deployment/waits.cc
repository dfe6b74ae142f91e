#include "coordinator/deployment/waits.h"

#include <utility>

#include "common/units.h"

namespace strata {

v1::Wait Describe(const Waiting& wait, TimePoint now) {
  v1::Wait out;
  out.set_what(wait.what);
  out.set_node(wait.node);
  out.set_model(wait.model);
  out.set_for_s(ToMs(now - wait.since) / 1e3);
  out.set_limit_s(ToMs(wait.limit) / 1e3);
  return out;
}

std::optional<v1::Problem> ProblemOf(const Waiting& wait, TimePoint now) {
  const nanoseconds late = wait.late > nanoseconds(0) ? wait.late : wait.limit / 2;
  if (late <= nanoseconds(0) || now - wait.since < late) {
    return std::nullopt;
  }
  v1::Problem problem;
  std::string what = "waiting for " + FormatDuration(now - wait.since) + " for " + wait.what;
  if (wait.limit > nanoseconds(0)) {
    what += "; it is given up after " + FormatDuration(wait.limit);
  }
  problem.set_what(what);
  problem.set_do_(wait.hint);
  return problem;
}

WaitBoard::Entry::~Entry() {
  MutexLock lock(&board_->mutex_);
  board_->waits_.erase(id_);
}

void WaitBoard::Entry::Progress(std::string what) {
  MutexLock lock(&board_->mutex_);
  Waiting& wait = board_->waits_[id_];
  wait.what = std::move(what);
  wait.since = board_->clock_->Now();
}

std::unique_ptr<WaitBoard::Entry> WaitBoard::Begin(Waiting wait) {
  wait.since = clock_->Now();
  MutexLock lock(&mutex_);
  const uint64_t id = ++newest_;
  waits_[id] = std::move(wait);
  return std::unique_ptr<Entry>(new Entry(this, id));
}

std::vector<Waiting> WaitBoard::List() const {
  MutexLock lock(&mutex_);
  std::vector<Waiting> all;
  for (const auto& [id, wait] : waits_) {
    all.push_back(wait);
  }
  return all;
}

}  // namespace strata
