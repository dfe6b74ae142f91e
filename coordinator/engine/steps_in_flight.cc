#include "coordinator/engine/steps_in_flight.h"

#include <algorithm>
#include <utility>

#include "common/check.h"

namespace strata {

void StepsInFlight::BeginEpoch() {
  STRATA_CHECK(empty());
  next_ = 1;
  committed_ = 0;
}

SentStep StepsInFlight::Begin() {
  SentStep sent;
  sent.step = next_++;
  sent.committed_step = committed_;
  return sent;
}

void StepsInFlight::Add(SentStep sent, TimePoint now) {
  if (empty()) {
    last_sign_ = now;
    sent.first = sent.alone = true;
  } else {
    steps_.front().alone = false;
  }
  sent.sent = now;
  steps_.push_back(std::move(sent));
}

SentStep StepsInFlight::Commit(TimePoint now) {
  SentStep sent = std::move(steps_.front());
  steps_.pop_front();
  committed_ = sent.step;
  last_sign_ = now;
  return sent;
}

std::map<uint64_t, uint32_t> StepsInFlight::Reach() const {
  std::map<uint64_t, uint32_t> reach;
  for (const SentStep& step : steps_) {
    for (const SentItem& item : step.items) {
      uint32_t& end = reach[item.session];
      end = std::max(end, item.position + item.rows - static_cast<uint32_t>(item.drafts.size()));
    }
  }
  return reach;
}

}  // namespace strata
