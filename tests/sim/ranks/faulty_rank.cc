#include "tests/sim/ranks/faulty_rank.h"

#include <algorithm>

#include "common/status.h"

namespace strata::sim {

absl::Status BehindCollective::Gather(const CollectivePoint& point, const GatheredRows& rows) {
  if (point.step != step_) {
    before_ = std::exchange(now_, {});
    step_ = point.step;
  }
  const size_t call = now_.size();
  const ByteColumns own = rows.columns[rank()];
  std::vector<uint8_t> mine;
  for (size_t row = 0; row < rows.rows; ++row) {
    const uint8_t* const from = rows.data + row * rows.stride;
    mine.insert(mine.end(), from + own.begin, from + own.end);
  }
  now_.push_back(mine);
  const bool alike =
      call < before_.size() && before_[call].size() == mine.size() && before_[call] != mine;
  if (!faults_.behind_in || (*faults_.behind_in > 0 && (--*faults_.behind_in, true)) || !alike) {
    return inner_->Gather(point, rows);
  }
  faults_.behind_in.reset();
  faults_.was_behind = true;
  for (size_t row = 0; row < rows.rows; ++row) {
    std::copy_n(before_[call].begin() + static_cast<ptrdiff_t>(row * own.size()), own.size(),
                rows.data + row * rows.stride + own.begin);
  }
  return inner_->Gather({point.epoch, point.step - 1, point.call}, rows);
}

absl::Status FaultyRank::MayFail() {
  if (!faults_.fails_in || (*faults_.fails_in)-- > 0) {
    return absl::OkStatus();
  }
  faults_.fails_in.reset();
  faults_.failed = true;
  return Error(absl::StatusCode::kInternal, "DEVICE_FAILED", "the device of the rank failed");
}

}  // namespace strata::sim
