// Links within a process: queues and threads in place of gRPC, with the same contract.
#ifndef STRATA_TESTS_WORKER_SERVICE_LOCAL_LINKS_H_
#define STRATA_TESTS_WORKER_SERVICE_LOCAL_LINKS_H_

#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <variant>
#include <vector>

#include "common/mutex.h"
#include "common/rpc/link_service.h"
#include "common/status.h"
#include "worker/service/frame_link.h"

namespace strata::testing {

class LocalDialer : public LinkDialer {
 public:
  using Accept = std::function<absl::StatusOr<std::shared_ptr<LinkSink>>(
      const v1::LinkOpen&, std::shared_ptr<InboundLink>)>;

  ~LocalDialer() override {
    for (std::thread& thread : threads_) {
      thread.join();
    }
  }

  void Listen(const std::string& address, Accept accept) {
    MutexLock lock(&mutex_);
    listeners_[address] = std::move(accept);
  }

  absl::StatusOr<std::unique_ptr<FrameLink>> Dial(const std::string& address,
                                                  const v1::LinkOpen& open,
                                                  uint32_t max_queued_frames, milliseconds timeout,
                                                  OnBroken on_broken) override {
    Accept accept;
    {
      MutexLock lock(&mutex_);
      ++dials_;
      if (const auto it = listeners_.find(address); it != listeners_.end()) {
        accept = it->second;
      }
    }
    if (!accept) {
      return Error(absl::StatusCode::kUnavailable, "LINK_NOT_OPENED", "nobody at " + address);
    }
    auto link = std::make_shared<Link>();
    link->on_broken = std::move(on_broken);
    link->max_queued_frames = max_queued_frames;
    ASSIGN_OR_RETURN(link->sink, accept(open, link));
    MutexLock lock(&mutex_);
    links_.push_back(link);
    threads_.emplace_back([link] { link->Run(); });
    return std::make_unique<Sender>(link);
  }

  using Give = std::function<absl::StatusOr<std::vector<v1::CarryKvPart>>(
      const v1::CarryKvRequest& request, bool begins)>;
  // Who gives KV there.
  void GiveKv(const std::string& address, Give give) {
    MutexLock lock(&mutex_);
    givers_[address] = std::move(give);
  }
  absl::Status CarryKv(const std::string& address, const v1::CarryKvRequest& request, milliseconds,
                       Cancellation*, const TakeFn& take) override {
    Give give;
    {
      MutexLock lock(&mutex_);
      give = givers_[address];
    }
    for (bool begins = true; give != nullptr; begins = false) {
      ASSIGN_OR_RETURN(const auto parts, give(request, begins));
      for (const v1::CarryKvPart& part : parts) {
        RETURN_IF_ERROR(take(part));
      }
      if (parts.empty()) {
        return absl::OkStatus();
      }
    }
    return absl::UnavailableError("nobody gives KV at " + address);
  }

  // Breaks the link that was dialled `back` links ago, if it is still there.
  void BreakOne(size_t back) {
    std::shared_ptr<Link> link;
    {
      MutexLock lock(&mutex_);
      if (back < links_.size()) {
        link = links_[links_.size() - 1 - back].lock();
      }
    }
    if (link != nullptr) {
      link->End(absl::UnavailableError("cut by the test"));
    }
  }

  int dials() {
    MutexLock lock(&mutex_);
    return dials_;
  }

 private:
  using Message = std::variant<StepMessage, ResultMessage>;

  struct Link : public InboundLink {
    void Break(const absl::Status& why) override { End(why); }

    void End(const absl::Status& why) {
      MutexLock lock(&mutex);
      if (status.ok()) {
        status = why;
      }
      changed.NotifyAll();
    }

    absl::Status Send(Message message) {
      MutexLock lock(&mutex);
      if (!status.ok()) {
        return status;
      }
      if (queue.size() >= max_queued_frames) {
        return absl::ResourceExhaustedError("LINK_QUEUE_FULL");
      }
      queue.push_back(std::move(message));
      changed.NotifyAll();
      return absl::OkStatus();
    }

    void Run() {
      absl::Status end;
      while (true) {
        Message message;
        {
          MutexLock lock(&mutex);
          while (queue.empty() && status.ok()) {
            changed.Wait(&mutex);
          }
          if (!status.ok()) {
            end = status;
            break;
          }
          message = std::move(queue.front());
          queue.pop_front();
        }
        const absl::Status taken =
            std::holds_alternative<StepMessage>(message)
                ? sink->OnStep(std::get<StepMessage>(std::move(message)))
                : sink->OnResult(std::get<ResultMessage>(std::move(message)));
        if (!taken.ok()) {
          End(taken);
        }
      }
      sink->OnClosed(end);
      sink = nullptr;  // Its host may hold this link.
      MutexLock lock(&callback_mutex);
      if (!closed_by_sender && on_broken) {
        on_broken(end);
      }
    }

    std::shared_ptr<LinkSink> sink;
    OnBroken on_broken;
    uint32_t max_queued_frames = 0;
    Mutex mutex;
    CondVar changed;
    absl::Status status;
    std::deque<Message> queue;
    Mutex callback_mutex;
    bool closed_by_sender = false;
  };

  class Sender : public FrameLink {
   public:
    explicit Sender(std::shared_ptr<Link> link) : link_(std::move(link)) {}
    ~Sender() override {
      {
        MutexLock lock(&link_->callback_mutex);
        link_->closed_by_sender = true;
      }
      link_->End(absl::CancelledError("the sender closed the link"));
    }
    absl::Status Send(StepMessage message) override { return link_->Send(std::move(message)); }
    absl::Status Send(ResultMessage message) override { return link_->Send(std::move(message)); }

   private:
    const std::shared_ptr<Link> link_;
  };

  Mutex mutex_;
  std::map<std::string, Accept> listeners_;
  std::map<std::string, Give> givers_;
  std::vector<std::weak_ptr<Link>> links_;
  std::vector<std::thread> threads_;
  int dials_ = 0;
};

}  // namespace strata::testing

#endif  // STRATA_TESTS_WORKER_SERVICE_LOCAL_LINKS_H_
