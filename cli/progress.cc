#include "cli/progress.h"

#include <algorithm>
#include <ostream>

#include "common/printable.h"
#include "common/units.h"

namespace strata::cli {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

constexpr milliseconds kRedrawEvery{100};
constexpr milliseconds kLogEvery{5000};
constexpr size_t kBarWidth = 28;
constexpr size_t kMaxTextBytes = 256;
constexpr size_t kPhaseWidth = 11;

}  // namespace

std::string FormatBar(const Bar& bar, size_t label_width, bool with_picture) {
  std::string line = Printable(bar.label, kMaxTextBytes);
  line.resize(std::max(line.size(), label_width), ' ');
  std::string phase = Printable(bar.phase, kMaxTextBytes);
  phase.resize(std::max(phase.size(), kPhaseWidth), ' ');
  line += "  " + phase;
  const uint64_t done = std::min(bar.done_bytes, bar.total_bytes);
  if (bar.total_bytes > 0) {
    const double share = static_cast<double>(done) / static_cast<double>(bar.total_bytes);
    if (with_picture) {
      const auto filled = static_cast<size_t>(share * kBarWidth);
      line += " [" + std::string(filled, '#') + std::string(kBarWidth - filled, '.') + "]";
    }
    std::string percent = std::to_string(static_cast<int>(share * 100));
    percent.insert(0, 3 - std::min<size_t>(3, percent.size()), ' ');
    line += " " + percent + " %  " +
            (bar.unit.empty() ? FormatSize(done) + " of " + FormatSize(bar.total_bytes)
                              : std::to_string(done) + " of " + std::to_string(bar.total_bytes) +
                                    " " + bar.unit);
  } else if (bar.done_bytes > 0) {
    line += " " + FormatSize(bar.done_bytes);
  }
  if (!bar.note.empty()) {
    line += "  " + Printable(bar.note, kMaxTextBytes);
  }
  line.erase(line.find_last_not_of(' ') + 1);
  return line;
}

void Progress::Show(const std::vector<Bar>& bars) {
  newest_ = bars;
  const auto now = steady_clock::now();
  if (terminal_) {
    if (lines_drawn_ == 0 || now - drawn_at_ >= kRedrawEvery) {
      Draw();
    }
    return;
  }
  for (const Bar& bar : bars) {
    const auto [it, fresh] = logged_.try_emplace(bar.label, Logged{bar.phase, now});
    if (fresh || it->second.phase != bar.phase || now - it->second.at >= kLogEvery) {
      it->second = {bar.phase, now};
      err_ << FormatBar(bar, 0, /*with_picture=*/false) << std::endl;
    }
  }
}

void Progress::Draw() {
  drawn_at_ = steady_clock::now();
  size_t width = 0;
  for (const Bar& bar : newest_) {
    width = std::max(width, bar.label.size());
  }
  if (lines_drawn_ > 0) {
    err_ << "\x1b[" << lines_drawn_ << "A";
  }
  for (const Bar& bar : newest_) {
    err_ << "\x1b[2K" << FormatBar(bar, width, /*with_picture=*/true) << '\n';
  }
  err_ << std::flush;
  lines_drawn_ = std::max(lines_drawn_, newest_.size());
}

void Progress::Finish() {
  if (terminal_ && lines_drawn_ > 0) {
    Draw();
  }
  lines_drawn_ = 0;
  newest_.clear();
}

}  // namespace strata::cli
