#include "common/app/log.h"

#include <spdlog/pattern_formatter.h>
#include <spdlog/sinks/stdout_color_sinks.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <cctype>
#include <cstddef>
#include <ctime>
#include <deque>
#include <memory>
#include <utility>
#include <vector>

#include "common/app/service_manager.h"
#include "common/mutex.h"
#include "common/printable.h"
#include "common/status.h"
#include "nlohmann/json.hpp"

namespace strata {
namespace {

using Json = nlohmann::ordered_json;
using Fields = std::initializer_list<LogField>;

// Of the line that this thread logs: sinks format on the thread that logs.
thread_local const Fields* fields_of_line = nullptr;

std::string& LogNode() {
  static auto* const node = new std::string;
  return *node;
}

std::string Dump(const Json& json) {
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

bool IsEmpty(const LogField& field) {
  const auto* text = std::get_if<std::string_view>(&field.value);
  return text != nullptr && text->empty();
}

// Three decimals: times are milliseconds.
std::string Number(double value) { return fmt::format("{:.3f}", value); }

// One JSON object a line; spdlog's patterns alone would not escape the message.
class JsonFormatter : public spdlog::formatter {
 public:
  void format(const spdlog::details::log_msg& message, spdlog::memory_buf_t& out) override {
    const auto ms =
        std::chrono::duration_cast<std::chrono::milliseconds>(message.time.time_since_epoch())
            .count();
    Json line;
    line["time_ms"] = ms;
    const auto level = spdlog::level::to_string_view(message.level);
    line["level"] = std::string(level.data(), level.size());
    line["message"] = std::string(message.payload.data(), message.payload.size());
    if (fields_of_line != nullptr) {
      for (const LogField& field : *fields_of_line) Add(field, &line);
    }
    if (!LogNode().empty() && !line.contains("node")) {
      line["node"] = LogNode();
    }
    const std::string text = Dump(line) + "\n";
    out.append(text.data(), text.data() + text.size());
  }
  std::unique_ptr<spdlog::formatter> clone() const override {
    return std::make_unique<JsonFormatter>();
  }

 private:
  static void Add(const LogField& field, Json* line) {
    if (IsEmpty(field)) {
      return;
    }
    Json& value = (*line)[std::string(field.name)];
    if (const auto* text = std::get_if<std::string_view>(&field.value)) {
      value = std::string(*text);
    } else if (const auto* count = std::get_if<uint64_t>(&field.value)) {
      value = *count;
    } else {
      value = std::stod(Number(std::get<double>(field.value)));
    }
  }
};

// As it is where it can be read back, else as JSON writes it: a value never looks like two fields.
std::string Quoted(std::string_view text) {
  const bool plain = std::all_of(text.begin(), text.end(), [](char c) {
    return c > ' ' && c <= '~' && c != '"' && c != '=' && c != '\\';
  });
  return plain ? std::string(text) : Printable(Dump(std::string(text)));
}

std::string ValueText(const LogField& field) {
  if (const auto* text = std::get_if<std::string_view>(&field.value)) {
    return std::string(*text);
  }
  if (const auto* count = std::get_if<uint64_t>(&field.value)) {
    return std::to_string(*count);
  }
  return Number(std::get<double>(field.value));
}

// " name=value" for each field of the line.
std::string FieldsText() {
  std::string text;
  if (fields_of_line == nullptr) {
    return text;
  }
  for (const LogField& field : *fields_of_line) {
    if (IsEmpty(field)) continue;
    text.append(" ").append(field.name).append("=");
    const auto* value = std::get_if<std::string_view>(&field.value);
    text += value != nullptr ? Quoted(*value) : ValueText(field);
  }
  return text;
}

class FieldsFlag : public spdlog::custom_flag_formatter {
 public:
  void format(const spdlog::details::log_msg& /*message*/, const std::tm& /*time*/,
              spdlog::memory_buf_t& out) override {
    const std::string text = FieldsText();
    out.append(text.data(), text.data() + text.size());
  }
  std::unique_ptr<spdlog::custom_flag_formatter> clone() const override {
    return std::make_unique<FieldsFlag>();
  }
};

// Severities as syslog counts them.
int PriorityOf(spdlog::level::level_enum level) {
  switch (level) {
    case spdlog::level::critical:
    case spdlog::level::err:
      return 3;
    case spdlog::level::warn:
      return 4;
    case spdlog::level::info:
      return 6;
    default:
      return 7;
  }
}

// systemd's journal has times and severities of its own, and indexes fields: STRATA_REQUEST_ID=...
class JournalSink : public spdlog::sinks::sink {
 public:
  void log(const spdlog::details::log_msg& message) override {
    std::vector<std::pair<std::string, std::string>> fields;
    bool names_node = false;
    if (fields_of_line != nullptr) {
      for (const LogField& field : *fields_of_line) {
        if (IsEmpty(field)) continue;
        names_node = names_node || field.name == "node";
        fields.emplace_back(JournalName(field.name), ValueText(field));
      }
    }
    if (!names_node && !LogNode().empty()) {
      fields.emplace_back(JournalName("node"), LogNode());
    }
    SendToJournal(PriorityOf(message.level),
                  std::string(message.payload.data(), message.payload.size()) + FieldsText(),
                  fields);
  }
  void flush() override {}
  void set_pattern(const std::string& /*pattern*/) override {}
  void set_formatter(std::unique_ptr<spdlog::formatter> /*formatter*/) override {}

 private:
  static std::string JournalName(std::string_view name) {
    std::string out = "STRATA_";
    for (const char c : name) {
      out += static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
    }
    return out;
  }
};

// What RecentLogLines gives.
class KeptLines {
 public:
  void Add(LogLevel level, std::string_view message) {
    constexpr const char* kNames[] = {"trace", "debug", "info", "warn", "error"};
    timespec now{};
    clock_gettime(CLOCK_REALTIME, &now);
    std::tm parts{};
    gmtime_r(&now.tv_sec, &parts);
    char time[32];
    std::strftime(time, sizeof(time), "%Y-%m-%dT%H:%M:%SZ ", &parts);
    std::string line = time;
    line.append(kNames[static_cast<size_t>(level)]).append(" ").append(message);
    line = Printable(line + FieldsText(), kMaxKeptLineBytes);
    MutexLock lock(&mutex_);
    lines_.push_back(std::move(line));
    if (lines_.size() > kKeptLogLines) lines_.pop_front();
  }
  std::vector<std::string> Newest(size_t count) {
    MutexLock lock(&mutex_);
    const size_t first = lines_.size() - std::min(count, lines_.size());
    return {lines_.begin() + static_cast<std::ptrdiff_t>(first), lines_.end()};
  }

 private:
  Mutex mutex_;
  std::deque<std::string> lines_ STRATA_GUARDED_BY(mutex_);
};

// Never destroyed: threads may log to the end.
KeptLines& Kept() {
  static KeptLines* const lines = new KeptLines();
  return *lines;
}

spdlog::level::level_enum LevelOf(LogLevel level) {
  switch (level) {
    case LogLevel::kTrace:
      return spdlog::level::trace;
    case LogLevel::kDebug:
      return spdlog::level::debug;
    case LogLevel::kInfo:
      return spdlog::level::info;
    case LogLevel::kWarn:
      return spdlog::level::warn;
    case LogLevel::kError:
      break;
  }
  return spdlog::level::err;
}

}  // namespace

absl::Status SetUpLogging(const std::string& level, const std::string& format) {
  const auto parsed = spdlog::level::from_str(level);
  if (parsed == spdlog::level::off && level != "off") {
    return Error(absl::StatusCode::kInvalidArgument, "BAD_FLAG",
                 "--log-level '" + level + "' is none of trace, debug, info, warn, error, off");
  }
  if (format != "auto" && format != "text" && format != "json") {
    return Error(absl::StatusCode::kInvalidArgument, "BAD_FLAG",
                 "--log-format '" + format + "' is none of auto, text, json");
  }
  if (format == "auto" && StderrIsJournal()) {
    auto journal = std::make_shared<spdlog::logger>("strata", std::make_shared<JournalSink>());
    journal->set_level(parsed);
    spdlog::set_default_logger(std::move(journal));
    return absl::OkStatus();
  }
  auto logger = std::make_shared<spdlog::logger>(
      "strata", std::make_shared<spdlog::sinks::stderr_color_sink_mt>());
  logger->set_level(parsed);
  if (format == "json") {
    logger->set_formatter(std::make_unique<JsonFormatter>());
  } else {
    auto formatter = std::make_unique<spdlog::pattern_formatter>();
    formatter->add_flag<FieldsFlag>('*').set_pattern("%Y-%m-%dT%H:%M:%S.%e %^%L%$ %v%*");
    logger->set_formatter(std::move(formatter));
  }
  spdlog::set_default_logger(std::move(logger));
  return absl::OkStatus();
}

void SetLogNode(const std::string& node) { LogNode() = node; }

bool LogEnabled(LogLevel level) { return spdlog::should_log(LevelOf(level)); }

std::vector<std::string> RecentLogLines(size_t count) { return Kept().Newest(count); }

void Log(LogLevel level, std::initializer_list<LogField> fields, std::string_view message) {
  if (!LogEnabled(level)) {
    return;
  }
  fields_of_line = &fields;
  std::string printable;
  if (!IsPrintable(message)) {
    printable = Printable(message);
    message = printable;
  }
  spdlog::default_logger_raw()->log(LevelOf(level),
                                    spdlog::string_view_t(message.data(), message.size()));
  if (level >= LogLevel::kInfo) {
    Kept().Add(level, message);
  }
  fields_of_line = nullptr;
}

}  // namespace strata
