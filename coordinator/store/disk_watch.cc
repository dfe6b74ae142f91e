#include "coordinator/store/disk_watch.h"

#include <optional>
#include <string>
#include <utility>

#include "common/status.h"
#include "common/units.h"

namespace strata {
namespace {

// A change of the store that takes longer is a problem.
constexpr nanoseconds kLongChange = std::chrono::seconds(10);

}  // namespace

DiskWatch::DiskWatch(DiskWatchOptions options, WatchedStore* store)
    : options_(std::move(options)),
      store_(store),
      disk_(options_.data_dir, options_.look_every, [this, store] {
        if (!store->problem().ok()) {
          store->Probe();
        }
        if (options_.probe) options_.probe();
      }) {}

std::vector<v1::Problem> DiskWatch::Problems() const {
  std::vector<v1::Problem> problems;
  const auto add = [&problems](const std::string& what, const std::string& hint) {
    v1::Problem& problem = problems.emplace_back();
    problem.set_what(what);
    problem.set_do_(hint);
  };
  if (const nanoseconds changing = store_->changing_for(); changing >= kLongChange) {
    add("the coordinator has been writing to its store for " + FormatDuration(changing) +
            ": what has to be recorded waits",
        "see to the disk of --data-dir (" + options_.data_dir + ")");
  }
  const std::optional<uint64_t> free_bytes = disk_.free_bytes();
  if (const absl::Status problem = store_->problem(); !problem.ok()) {
    const v1::ErrorDetail detail = DetailOf(problem);
    add("the coordinator cannot record anything: " + detail.message() +
            "; what is loaded is served, and changes are refused",
        detail.hint());
  } else if (free_bytes.has_value() && *free_bytes < options_.least_free_bytes) {
    add("the disk of the coordinator's --data-dir (" + options_.data_dir + ") has " +
            FormatSize(*free_bytes) + " free",
        "make room there: models cannot be uploaded or pulled, and soon nothing can be recorded");
  }
  return problems;
}

}  // namespace strata
