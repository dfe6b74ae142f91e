// Logs go to stderr, or to systemd's journal behind it: a message for people, and fields that say
// what it is about, so that one request can be followed through all processes by its id.
#ifndef STRATA_COMMON_APP_LOG_H_
#define STRATA_COMMON_APP_LOG_H_

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "absl/status/status.h"

namespace strata {

enum class LogLevel { kTrace, kDebug, kInfo, kWarn, kError };

// Names are the same everywhere: request_id, model, node, deployment, epoch, stage, step; times end
// in _ms. Refers to what it is made of.
struct LogField {
  LogField(std::string_view n, std::string_view v) : name(n), value(v) {}
  LogField(std::string_view n, const std::string& v) : name(n), value(std::string_view(v)) {}
  LogField(std::string_view n, const char* v) : name(n), value(std::string_view(v)) {}
  template <std::unsigned_integral T>
  LogField(std::string_view n, T v) : name(n), value(uint64_t{v}) {}
  LogField(std::string_view n, double v) : name(n), value(v) {}

  std::string_view name;
  std::variant<std::string_view, uint64_t, double> value;  // "": the field is left out.
};

// `level`: trace, debug, info, warn, error or off; `format`: text (the message, then name=value),
// json (one object a line), or auto: text, and where stderr leads to systemd's journal a line of it
// with the fields as STRATA_NAME.
absl::Status SetUpLogging(const std::string& level, const std::string& format);

// From now on JSON lines that name no other have the field `node` with this value. Before threads
// log.
void SetLogNode(const std::string& node);

bool LogEnabled(LogLevel level);

// The newest lines of level info and above, oldest first, at most `count`: time, level, message and
// fields, as text. The last kKeptLogLines are kept, each cut to kMaxKeptLineBytes. Any thread.
inline constexpr size_t kKeptLogLines = 2000;
inline constexpr size_t kMaxKeptLineBytes = 1024;
std::vector<std::string> RecentLogLines(size_t count);
// Any thread.
void Log(LogLevel level, std::initializer_list<LogField> fields, std::string_view message);

inline void LogDebug(std::initializer_list<LogField> fields, std::string_view message) {
  Log(LogLevel::kDebug, fields, message);
}
inline void LogInfo(std::initializer_list<LogField> fields, std::string_view message) {
  Log(LogLevel::kInfo, fields, message);
}
inline void LogWarn(std::initializer_list<LogField> fields, std::string_view message) {
  Log(LogLevel::kWarn, fields, message);
}
inline void LogError(std::initializer_list<LogField> fields, std::string_view message) {
  Log(LogLevel::kError, fields, message);
}

}  // namespace strata

#endif  // STRATA_COMMON_APP_LOG_H_
