// Tells the service manager what the process does, and that it is alive: only while each thread
// that matters has answered since the last time.
#ifndef STRATA_COMMON_APP_SERVICE_REPORTER_H_
#define STRATA_COMMON_APP_SERVICE_REPORTER_H_

#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "common/app/service_manager.h"
#include "common/clock.h"
#include "common/mutex.h"

namespace strata {

class ServiceReporter {
 public:
  // A thread that is asked for a sign of life. `ask` does not wait: it has the thread call
  // `answer`, with a status for people where the thread has one to say, else "". Answers may come
  // on any thread, also after the reporter's end.
  struct Watched {
    std::string name;  // For the log.
    std::function<void(std::function<void(const std::string& status)> answer)> ask;
  };

  ServiceReporter(ServiceManager manager, std::vector<Watched> threads);
  ~ServiceReporter();  // Stops.
  ServiceReporter(const ServiceReporter&) = delete;
  ServiceReporter& operator=(const ServiceReporter&) = delete;

  // Looks on a thread of its own from now on; nothing without a manager.
  void Start();
  // Asks nobody any more, and returns when that is so.
  void Stop();

  // One look at `now`: asks all threads where it is time, and tells the manager once all have
  // answered. Start calls it; by itself it is for tests.
  void Look(TimePoint now);
  // How often threads are asked: thrice and more within the manager's patience.
  nanoseconds every() const { return every_; }

 private:
  struct Round;
  void Run();
  // What nobody has answered for, in words; "" if all have.
  std::string Silent() const;

  const ServiceManager manager_;
  const std::vector<Watched> threads_;
  const nanoseconds every_;
  std::shared_ptr<Round> round_;  // Of Look's thread; null between rounds.
  TimePoint next_{0};
  bool warned_ = false;
  std::string status_;  // What the manager was told.

  Mutex mutex_;
  CondVar stop_;
  bool stopping_ STRATA_GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

}  // namespace strata

#endif  // STRATA_COMMON_APP_SERVICE_REPORTER_H_
