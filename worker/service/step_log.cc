#include "worker/service/step_log.h"

#include <variant>

#include "common/app/log.h"
#include "common/status.h"
#include "common/units.h"

namespace strata {
namespace {

void LogSequence(const StepPlace& place, const v1::StepFrame& frame, const v1::SequenceName& name,
                 std::string_view what) {
  LogDebug({{"request_id", name.request_id()},
            {"model", place.model},
            {"deployment", place.deployment},
            {"epoch", frame.epoch()},
            {"stage", place.stage},
            {"step", frame.step()},
            {"generation", name.generation()}},
           what);
}

// StepItems and ItemResults alike.
template <typename Items>
void LogErrors(const StepPlace& place, uint64_t epoch, uint64_t step, const Items& items) {
  for (const auto& item : items) {
    if (item.has_error() && item.error_stage() == place.stage) {
      LogWarn({{"request_id", item.sequence().request_id()},
               {"model", place.model},
               {"deployment", place.deployment},
               {"epoch", epoch},
               {"stage", place.stage},
               {"step", step},
               {"reason", item.error().reason()}},
              "a request's rows were rejected: " + Describe(StatusOf(item.error())));
    }
  }
}

}  // namespace

void LogSequences(const StepPlace& place, const StepMessage& step) {
  if (!LogEnabled(LogLevel::kDebug)) {
    return;
  }
  const v1::StepFrame& frame = step.header;
  for (const v1::StepCommand& command : frame.commands()) {
    if (command.has_fork()) {
      LogSequence(place, frame, command.fork().destination(), "a sequence begins with a prefix");
    } else if (command.has_release()) {
      LogSequence(place, frame, command.release().sequence(), "a sequence is released");
    }
  }
  for (const v1::StepItem& item : frame.items()) {
    if (item.position() == 0) {
      LogSequence(place, frame, item.sequence(), "a sequence begins");
    }
  }
}

void LogRejected(const StepPlace& place, uint64_t epoch, uint64_t step,
                 const ShardRunner::Output& output) {
  if (const auto* onward = std::get_if<StepMessage>(&output)) {
    LogErrors(place, epoch, step, onward->header.items());
  } else if (const auto* result = std::get_if<ResultMessage>(&output)) {
    LogErrors(place, epoch, step, result->header.items());
  }
}

void LogCarried(const StepPlace& place, const CarriedKv& carried) {
  const std::string size = FormatSize(carried.taken.bytes);
  Log(carried.status.ok() ? LogLevel::kInfo : LogLevel::kWarn,
      {{"model", place.model},
       {"deployment", place.deployment},
       {"epoch", carried.epoch},
       {"stage", place.stage},
       {"from", carried.from},
       {"pages", size},
       {"sequences", carried.taken.sequences},
       {"took_ms", ToMs(carried.took)}},
      !carried.status.ok()
          ? "KV cannot be taken over, and is computed again: " + Describe(carried.status)
      : carried.ahead ? "KV comes over from the stage before"
                      : "KV is taken over from the stage before");
}

}  // namespace strata
