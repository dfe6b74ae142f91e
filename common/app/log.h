// Logs go to stderr, through spdlog: SPDLOG_INFO and its like, anywhere.
#ifndef STRATA_COMMON_APP_LOG_H_
#define STRATA_COMMON_APP_LOG_H_

#include <string>

#include "absl/status/status.h"

namespace strata {

// `level`: trace, debug, info, warn, error or off; `format`: text or json (one object a line).
absl::Status SetUpLogging(const std::string& level, const std::string& format);

}  // namespace strata

#endif  // STRATA_COMMON_APP_LOG_H_
