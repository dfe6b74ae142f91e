#include "cli/bench/cluster_target.h"

#include <chrono>
#include <utility>

#include "common/status.h"

namespace strata::cli {
namespace {

using std::chrono::steady_clock;

RequestEnd EndOf(const sdk::StreamSet::Event& event) {
  RequestEnd end;
  end.status = event.status;
  if (end.status.ok() && event.result.finish_reason == "cancelled") {
    end.status = Error(absl::StatusCode::kCancelled, "CANCELLED",
                       "somebody cancelled request " + event.result.request_id);
  }
  end.refused = absl::IsResourceExhausted(end.status);
  end.prompt_tokens = event.result.prompt_tokens;
  end.cached_tokens = event.result.cached_tokens;
  end.numerics_class = event.result.numerics_class;
  return end;
}

}  // namespace

void ClusterTarget::Start(uint32_t request, const WorkloadRequest& what) {
  sdk::GenerateRequest generate;
  generate.model = model_;
  generate.prompt = what.prompt;
  generate.max_tokens = what.max_tokens;
  generate.ignore_eos = true;
  generate.sampling.temperature = 0;
  streams_.Start(request, generate);
}

void ClusterTarget::Poll(TimePoint until, LoadObserver* observer) {
  const SystemClock clock;
  auto event = streams_.Next(
      steady_clock::time_point(std::chrono::duration_cast<steady_clock::duration>(until)));
  while (event.has_value()) {
    const TimePoint now = clock.Now();
    const auto request = static_cast<uint32_t>(event->id);
    if (event->ended) {
      observer->OnEnd(request, now, EndOf(*event));
      return;  // There may be another one to begin.
    }
    observer->OnText(request, event->piece.text);
    if (!event->piece.token_ids.empty()) {
      observer->OnTokens(request, now, static_cast<uint32_t>(event->piece.token_ids.size()));
    }
    if (now >= until) {
      return;
    }
    event = streams_.Next(steady_clock::now());
  }
}

}  // namespace strata::cli
