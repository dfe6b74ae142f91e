#include "common/app/service_reporter.h"

#include <algorithm>
#include <utility>

#include "common/app/log.h"

namespace strata {
namespace {

// Status lines need not come more often.
constexpr nanoseconds kEvery = std::chrono::seconds(2);
constexpr nanoseconds kLookEvery = std::chrono::milliseconds(50);

nanoseconds EveryOf(const ServiceManager& manager) {
  return manager.watchdog > nanoseconds(0) ? std::min(kEvery, manager.watchdog / 4) : kEvery;
}

}  // namespace

// What is asked at one time. Its answers may come when nobody waits for them any more.
struct ServiceReporter::Round {
  explicit Round(TimePoint begun, size_t threads) : begun(begun), answered(threads, false) {}
  const TimePoint begun;
  Mutex mutex;
  std::vector<bool> answered STRATA_GUARDED_BY(mutex);
  std::string status STRATA_GUARDED_BY(mutex);
};

ServiceReporter::ServiceReporter(ServiceManager manager, std::vector<Watched> threads)
    : manager_(std::move(manager)), threads_(std::move(threads)), every_(EveryOf(manager_)) {}

ServiceReporter::~ServiceReporter() { Stop(); }

void ServiceReporter::Start() {
  if (manager_.present()) {
    thread_ = std::thread([this] { Run(); });
  }
}

void ServiceReporter::Stop() {
  {
    MutexLock lock(&mutex_);
    stopping_ = true;
    stop_.NotifyAll();
  }
  if (thread_.joinable()) {
    thread_.join();
  }
}

void ServiceReporter::Run() {
  const SystemClock clock;
  MutexLock lock(&mutex_);
  while (!stopping_) {
    mutex_.Unlock();
    Look(clock.Now());
    mutex_.Lock();
    if (!stopping_) {
      stop_.WaitFor(&mutex_, kLookEvery);
    }
  }
}

std::string ServiceReporter::Silent() const {
  std::string names;
  MutexLock lock(&round_->mutex);
  for (size_t i = 0; i < threads_.size(); ++i) {
    if (!round_->answered[i]) {
      names += (names.empty() ? "" : ", ") + threads_[i].name;
    }
  }
  return names;
}

void ServiceReporter::Look(TimePoint now) {
  if (round_ == nullptr) {
    if (now < next_) {
      return;
    }
    round_ = std::make_shared<Round>(now, threads_.size());
    for (size_t i = 0; i < threads_.size(); ++i) {
      threads_[i].ask([round = round_, i](const std::string& status) {
        MutexLock lock(&round->mutex);
        round->answered[i] = true;
        if (!status.empty()) {
          round->status = status;
        }
      });
    }
  }
  if (const std::string silent = Silent(); !silent.empty()) {
    if (now - round_->begun >= std::max(2 * every_, kEvery) && !std::exchange(warned_, true)) {
      LogWarn({{"silent_ms", ToMs(now - round_->begun)}},
              "no sign of life from " + silent +
                  (manager_.watchdog > nanoseconds(0)
                       ? "; the service manager ends this process unless it comes"
                       : ""));
    }
    return;
  }
  std::string lines = manager_.watchdog > nanoseconds(0) ? "WATCHDOG=1\n" : "";
  {
    MutexLock lock(&round_->mutex);
    if (!round_->status.empty() && round_->status != status_) {
      status_ = round_->status;
      lines += StatusLine(status_);
    }
  }
  if (!lines.empty()) {
    manager_.notify(lines);
  }
  next_ = round_->begun + every_;
  round_ = nullptr;
  if (std::exchange(warned_, false)) {
    LogInfo({}, "all threads give signs of life again");
  }
}

}  // namespace strata
