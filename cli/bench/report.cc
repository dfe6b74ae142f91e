#include "cli/bench/report.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "common/check.h"
#include "common/status.h"

namespace strata::cli {

double Percentile(std::vector<double>* values, double share) {
  if (values->empty()) {
    return 0;
  }
  std::sort(values->begin(), values->end());
  const double rank = std::ceil(share * static_cast<double>(values->size()));
  return (*values)[static_cast<size_t>(std::max(rank, 1.0)) - 1];
}

Percentiles PercentilesOf(std::vector<double> values) {
  return {Percentile(&values, 0.50), Percentile(&values, 0.95), Percentile(&values, 0.99)};
}

void LoadRecorder::OnBegin(uint32_t request, TimePoint due, TimePoint now) {
  Running running;
  running.due = due;
  const bool fresh = running_.emplace(request, std::move(running)).second;
  STRATA_CHECK(fresh);
  ++report_.requests;
  late_ms_.push_back(ToMs(now - due));
}

void LoadRecorder::OnTokens(uint32_t request, TimePoint at, uint32_t tokens) {
  Running& running = running_.at(request);
  if (running.tokens == 0) {
    running.first = at;  // Those that came with the first one took no time of their own.
  } else {
    running.gaps_ms.insert(running.gaps_ms.end(), tokens, ToMs(at - running.last) / tokens);
  }
  running.tokens += tokens;
  running.last = at;
  tokens_seen_ += tokens;
}

void LoadRecorder::OnText(uint32_t request, std::string_view text) {
  if (on_answer_) {
    running_.at(request).text += text;
  }
}

void LoadRecorder::OnEnd(uint32_t request, TimePoint at, const RequestEnd& end) {
  auto own = running_.extract(request);
  STRATA_CHECK(!own.empty());
  ++ended_;
  last_end_ = std::max(last_end_, at);
  if (on_answer_) {
    on_answer_(request, own.mapped().text, end);
  }
  if (end.status.ok()) {
    TakeAnswer(std::move(own.mapped()), at, end);
  } else {
    TakeFailure(end);
  }
}

void LoadRecorder::TakeFailure(const RequestEnd& end) {
  ++report_.failed;
  report_.refused += end.refused ? 1 : 0;
  if (report_.first_error.ok()) {
    report_.first_error = end.status;
  }
  std::string reason = ReasonOf(end.status);
  if (reason.empty()) {
    reason = absl::StatusCodeToString(end.status.code());
  }
  Failures& failures = report_.failures[reason];
  if (failures.count++ == 0) {
    failures.first = end.status;
  }
}

void LoadRecorder::TakeAnswer(Running running, TimePoint at, const RequestEnd& end) {
  // Where the other side counted more tokens than there were messages, several came in one: its
  // gap is theirs. The first message's tokens are as many as any other's, as far as we know.
  const uint32_t tokens = end.generated_tokens > 0 ? end.generated_tokens : running.tokens;
  if (tokens > running.tokens && running.tokens > 0) {
    for (double& gap : running.gaps_ms) {
      gap *= static_cast<double>(running.tokens) / tokens;
    }
  }
  report_.prompt_tokens += end.prompt_tokens;
  report_.generated_tokens += tokens;
  report_.cached_tokens += end.cached_tokens;
  const double request_ms = ToMs(at - running.due);
  const double ttft_ms = running.tokens > 0 ? ToMs(running.first - running.due) : request_ms;
  double mean_gap_ms = 0;
  for (const double gap : running.gaps_ms) {
    mean_gap_ms += gap / static_cast<double>(running.gaps_ms.size());
  }
  if (running.tokens > 0) {
    ttft_ms_.push_back(ttft_ms);
  }
  gaps_ms_.insert(gaps_ms_.end(), running.gaps_ms.begin(), running.gaps_ms.end());
  request_ms_.push_back(request_ms);
  if (ttft_ms <= targets_.ttft_ms.value_or(ttft_ms) &&
      mean_gap_ms <= targets_.inter_token_ms.value_or(mean_gap_ms)) {
    ++report_.good;
  }
  if (!end.numerics_class.empty()) {
    report_.numerics_class = end.numerics_class;
  }
}

LoadReport LoadRecorder::Report() const {
  LoadReport report = report_;
  report.wall_s = ToMs(std::max(last_end_, begin_) - begin_) / 1e3;
  const auto per_s = [&](uint64_t count) {
    return report.wall_s > 0 ? static_cast<double>(count) / report.wall_s : 0;
  };
  report.requests_per_s = per_s(ended_ - report.failed);
  report.prompt_tokens_per_s = per_s(report.prompt_tokens);
  report.generated_tokens_per_s = per_s(report.generated_tokens);
  report.good_requests_per_s = per_s(report.good);
  report.ttft_ms = PercentilesOf(ttft_ms_);
  report.inter_token_ms = PercentilesOf(gaps_ms_);
  report.request_ms = PercentilesOf(request_ms_);
  report.late_ms = PercentilesOf(late_ms_);
  return report;
}

}  // namespace strata::cli
