#include "common/app/log.h"

#include <spdlog/pattern_formatter.h>
#include <spdlog/sinks/stdout_color_sinks.h>
#include <spdlog/spdlog.h>

#include <memory>
#include <utility>

#include "common/status.h"
#include "nlohmann/json.hpp"

namespace strata {
namespace {

// One JSON object a line; spdlog's patterns alone would not escape the message.
class JsonFormatter : public spdlog::formatter {
 public:
  void format(const spdlog::details::log_msg& message, spdlog::memory_buf_t& out) override {
    const auto ms =
        std::chrono::duration_cast<std::chrono::milliseconds>(message.time.time_since_epoch())
            .count();
    nlohmann::ordered_json line;
    line["time_ms"] = ms;
    const auto level = spdlog::level::to_string_view(message.level);
    line["level"] = std::string(level.data(), level.size());
    line["message"] = std::string(message.payload.data(), message.payload.size());
    const std::string text =
        line.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n";
    out.append(text.data(), text.data() + text.size());
  }
  std::unique_ptr<spdlog::formatter> clone() const override {
    return std::make_unique<JsonFormatter>();
  }
};

}  // namespace

absl::Status SetUpLogging(const std::string& level, const std::string& format) {
  const auto parsed = spdlog::level::from_str(level);
  if (parsed == spdlog::level::off && level != "off") {
    return Error(absl::StatusCode::kInvalidArgument, "BAD_FLAG",
                 "--log-level '" + level + "' is none of trace, debug, info, warn, error, off");
  }
  if (format != "text" && format != "json") {
    return Error(absl::StatusCode::kInvalidArgument, "BAD_FLAG",
                 "--log-format '" + format + "' is neither text nor json");
  }
  auto logger = spdlog::stderr_color_mt("strata");
  logger->set_level(parsed);
  if (format == "json") {
    logger->set_formatter(std::make_unique<JsonFormatter>());
  } else {
    logger->set_pattern("%Y-%m-%dT%H:%M:%S.%e %^%L%$ %v");
  }
  spdlog::set_default_logger(std::move(logger));
  return absl::OkStatus();
}

}  // namespace strata
