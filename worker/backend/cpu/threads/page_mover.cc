#include "worker/backend/cpu/threads/page_mover.h"

#include <algorithm>
#include <utility>

#include "common/status.h"
#include "worker/backend/cpu/threads/page_buffer.h"

namespace strata::cpu {
namespace {

std::atomic<uint64_t> unmoved_bytes = 0;

}  // namespace

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

PageMover::PageMover(const std::vector<std::span<uint8_t>>& mapped, DoneFn told,
                     std::function<uint64_t()> available)
    : pieces_(PiecesOf(mapped)), told_(std::move(told)), available_(std::move(available)) {
  for (const std::span<uint8_t> piece : pieces_) {
    left_bytes_ += piece.size();
  }
  unmoved_bytes += left_bytes_;
  thread_ = std::thread([this] { Run(); });
}

PageMover::~PageMover() {
  stop_ = true;
  thread_.join();
  unmoved_bytes -= left_bytes_;
}

uint64_t PageMover::UnmovedBytes() { return unmoved_bytes; }

void PageMover::Run() {
  NameThread("strata-load");
  uint64_t moved = 0;
  absl::Status status;
  for (const std::span<uint8_t> piece : pieces_) {
    if (stop_) {
      return;
    }
    // Nobody's memory is taken for what is only faster.
    status = available_() < 2 * piece.size()
                 ? Error(absl::StatusCode::kResourceExhausted, "PAGES", "memory is short")
                 : MovePages(piece.data(), piece.size());
    if (!status.ok()) {
      break;
    }
    moved += piece.size();
    left_bytes_ -= piece.size();
    unmoved_bytes -= piece.size();
  }
  if (told_) {
    told_(status, moved);
  }
}

}  // namespace strata::cpu
