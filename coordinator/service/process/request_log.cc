#include "coordinator/service/process/request_log.h"

#include <utility>

#include "common/app/log.h"
#include "common/limits.h"
#include "common/status.h"

namespace strata {

RequestLog::RequestLog(std::string_view request_id, std::string model, bool ends_at_info)
    : request_id_(request_id.substr(0, kMaxRequestIdBytes)),
      model_(std::move(model)),
      ends_at_info_(ends_at_info) {}

void RequestLog::SetServing(uint64_t deployment, uint64_t epoch) {
  deployment_ = deployment;
  epoch_ = epoch;
}

void RequestLog::Accepted(nanoseconds admission) {
  LogDebug({{"request_id", request_id_},
            {"model", model_},
            {"deployment", deployment_},
            {"epoch", epoch_},
            {"admission_ms", ToMs(admission)}},
           "a request was accepted");
}

void RequestLog::Started(const StartedInfo& info) {
  LogDebug({{"request_id", request_id_},
            {"model", model_},
            {"deployment", deployment_},
            {"epoch", epoch_},
            {"prompt_tokens", info.prompt_tokens},
            {"max_tokens", info.max_tokens},
            {"queue_ms", ToMs(info.queued)}},
           "a request starts");
}

void RequestLog::FirstToken(nanoseconds since_start) {
  LogDebug({{"request_id", request_id_},
            {"model", model_},
            {"deployment", deployment_},
            {"epoch", epoch_},
            {"prefill_ms", ToMs(since_start)}},
           "a request's first token");
}

void RequestLog::Done(const FinishInfo& info) {
  Log(ends_at_info_ ? LogLevel::kInfo : LogLevel::kDebug,
      {{"request_id", request_id_},
       {"model", model_},
       {"deployment", deployment_},
       {"epoch", epoch_},
       {"reason", info.reason},
       {"prompt_tokens", info.prompt_tokens},
       {"generated_tokens", info.completion_tokens},
       {"cached_tokens", info.cached_tokens},
       {"queue_ms", ToMs(info.queued)},
       {"first_token_ms", ToMs(info.first_token)},
       {"total_ms", ToMs(info.total)},
       {"steps", info.steps},
       {"compute_ms", ToMs(info.times.computed)},
       {"wait_ms", ToMs(info.times.waited)},
       {"hop_ms", ToMs(info.times.hops)},
       {"preemptions", info.preemptions},
       {"drafted_tokens", info.drafted_tokens},
       {"accepted_tokens", info.accepted_tokens}},
      "a request ended");
}

void RequestLog::Failed(const absl::Status& status) {
  const bool by_client = absl::IsCancelled(status) || absl::IsDeadlineExceeded(status);
  const LogLevel level = !by_client      ? LogLevel::kWarn
                         : ends_at_info_ ? LogLevel::kInfo
                                         : LogLevel::kDebug;
  Log(level,
      {{"request_id", request_id_},
       {"model", model_},
       {"deployment", deployment_},
       {"epoch", epoch_},
       {"node", DetailOf(status).node()},
       {"reason", ReasonOf(status)}},
      "a request failed: " + Describe(status));
}

void RequestLog::Refused(const absl::Status& status) {
  if (LogEnabled(LogLevel::kDebug)) {
    LogDebug({{"request_id", request_id_}, {"model", model_}, {"reason", ReasonOf(status)}},
             "a request was refused: " + Describe(status));
  }
}

}  // namespace strata
