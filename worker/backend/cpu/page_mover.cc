#include "worker/backend/cpu/page_mover.h"

#include <algorithm>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "common/platform/platform.h"
#include "common/status.h"
#include "common/units.h"
#include "worker/backend/cpu/page_buffer.h"
#include "worker/backend/cpu/thread_pool.h"

namespace strata::cpu {

std::vector<std::span<uint8_t>> PageMover::PiecesOf(const std::vector<std::span<uint8_t>>& mapped) {
  std::vector<std::span<uint8_t>> sorted = mapped;
  std::sort(sorted.begin(), sorted.end(),
            [](const auto& a, const auto& b) { return a.data() < b.data(); });
  std::vector<std::span<uint8_t>> pieces;
  for (const std::span<uint8_t> span : sorted) {
    const auto at = reinterpret_cast<uintptr_t>(span.data());
    uint8_t* begin = span.data() - at % kLargePageBytes;
    uint8_t* const end = begin + RoundUp(at % kLargePageBytes + span.size(), kLargePageBytes);
    if (!pieces.empty()) {
      std::span<uint8_t>& last = pieces.back();
      begin = std::max(begin, last.data() + last.size());
      // What follows the last one grows it first.
      if (begin < end && begin == last.data() + last.size() && last.size() < kPieceBytes) {
        const auto more =
            std::min<size_t>(static_cast<size_t>(end - begin), kPieceBytes - last.size());
        last = {last.data(), last.size() + more};
        begin += more;
      }
    }
    while (begin < end) {
      const size_t bytes = std::min<size_t>(static_cast<size_t>(end - begin), kPieceBytes);
      pieces.emplace_back(begin, bytes);
      begin += bytes;
    }
  }
  return pieces;
}

PageMover::PageMover(const std::vector<std::span<uint8_t>>& mapped,
                     std::function<void(const std::string&)> log)
    : pieces_(PiecesOf(mapped)), log_(std::move(log)), thread_([this] { Run(); }) {}

PageMover::~PageMover() {
  stop_ = true;
  thread_.join();
}

void PageMover::Run() {
  BeginUse(ThreadUse::kLoad);
  uint64_t moved = 0;
  absl::Status status;
  for (const std::span<uint8_t> piece : pieces_) {
    if (stop_) {
      return;
    }
    // Nobody's admitted memory is taken for what is only faster.
    const uint64_t available = AvailableMemoryBytes();
    status = available != 0 && available < 2 * piece.size()
                 ? Error(absl::StatusCode::kResourceExhausted, "PAGES", "memory is short")
                 : MovePages(piece.data(), piece.size());
    if (!status.ok()) {
      break;
    }
    moved += piece.size();
  }
  if (log_) {
    log_(status.ok() ? absl::StrCat(FormatSize(moved), " of weights moved to large pages")
                     : absl::StrCat("weights stay in files' pages, which are read more slowly, but "
                                    "for ",
                                    FormatSize(moved), ": ", Describe(status)));
  }
  done_ = true;
}

}  // namespace strata::cpu
