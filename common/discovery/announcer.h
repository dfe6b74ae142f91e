// A service of this process, announced on the local network by the avahi-daemon of this machine.
#ifndef STRATA_COMMON_DISCOVERY_ANNOUNCER_H_
#define STRATA_COMMON_DISCOVERY_ANNOUNCER_H_

#include <cstdint>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "common/mutex.h"

namespace strata {

struct Announcement {
  std::string name;                     // For people; of a longer one the first 63 bytes.
  uint16_t port = 0;                    // Of the service.
  std::vector<std::string> facts = {};  // "key=value".

  bool operator==(const Announcement&) const = default;
};

// Any thread, but for Start and Stop, which are one thread's.
class Announcer {
 public:
  Announcer() = default;
  ~Announcer() { Stop(); }
  Announcer(const Announcer&) = delete;
  Announcer& operator=(const Announcer&) = delete;

  // From now on announces a coordinator, and anew when `what` says otherwise, which is asked every
  // second on a thread of the announcer's. Where it cannot be, it is tried again and again. Once.
  void Start(std::function<Announcement()> what);
  // Waits until it is not announced any more, which also becomes so if this process ends in any
  // other way.
  void Stop() STRATA_EXCLUDES(mutex_);

  // Why it is not announced: UNAVAILABLE (NOT_ANNOUNCED). OK before Start, too.
  absl::Status problem() const STRATA_EXCLUDES(mutex_);

 private:
  void Work(const std::function<Announcement()>& what) STRATA_EXCLUDES(mutex_);
  void SetProblem(const absl::Status& problem) STRATA_EXCLUDES(mutex_);
  // Whether it is to stop, after a while if not.
  bool Waited() STRATA_EXCLUDES(mutex_);

  mutable Mutex mutex_;
  CondVar changed_;
  bool stopping_ STRATA_GUARDED_BY(mutex_) = false;
  absl::Status problem_ STRATA_GUARDED_BY(mutex_);
  std::thread thread_;
};

}  // namespace strata

#endif  // STRATA_COMMON_DISCOVERY_ANNOUNCER_H_
