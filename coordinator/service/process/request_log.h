// What the log says of one request: each line has its id. docs/OPERATIONS.md, "Logs".
#ifndef STRATA_COORDINATOR_SERVICE_PROCESS_REQUEST_LOG_H_
#define STRATA_COORDINATOR_SERVICE_PROCESS_REQUEST_LOG_H_

#include <cstdint>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "coordinator/engine/session.h"

namespace strata {

// One thread at a time.
class RequestLog {
 public:
  // `ends_at_info`: the end of a request is a line of level info, not debug.
  RequestLog(std::string_view request_id, std::string model, bool ends_at_info);

  void SetServing(uint64_t deployment, uint64_t epoch);

  void Accepted(nanoseconds admission);  // Debug, as the next two.
  void Started(const StartedInfo& info);
  void FirstToken(nanoseconds since_start);
  void Done(const FinishInfo& info);
  // A warning, unless the client ended it.
  void Failed(const absl::Status& status);
  // Debug: whoever floods the coordinator is not to flood its log.
  void Refused(const absl::Status& status);

 private:
  const std::string request_id_;
  const std::string model_;
  const bool ends_at_info_;
  uint64_t deployment_ = 0;
  uint64_t epoch_ = 0;
};

}  // namespace strata

#endif  // STRATA_COORDINATOR_SERVICE_PROCESS_REQUEST_LOG_H_
