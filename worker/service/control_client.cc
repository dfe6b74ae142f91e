#include "worker/service/control_client.h"

#include <grpcpp/channel.h>
#include <grpcpp/client_context.h>

#include <algorithm>
#include <optional>
#include <random>
#include <thread>
#include <utility>

#include "common/app/log.h"
#include "common/mutex.h"
#include "common/rpc/connection_probe.h"
#include "common/rpc/status.h"
#include "common/status.h"
#include "strata/v1/membership.grpc.pb.h"
#include "strata/v1/shard.grpc.pb.h"
#include "worker/service/control_stream.h"
#include "worker/service/lease_policy.h"

namespace strata {
namespace {

using Time = std::chrono::steady_clock::time_point;

constexpr Time kNever = Time::max();
constexpr milliseconds kConnectTry{500};
constexpr milliseconds kProbeTimeout{1000};
constexpr milliseconds kLookEvery{1000};
// The coordinator dials back before it answers.
constexpr milliseconds kRegisterTimeout{20'000};
constexpr milliseconds kFirstBackoff{200};
constexpr milliseconds kMaxBackoff{5000};
constexpr milliseconds kShortestBeat{20};

Time Now() { return std::chrono::steady_clock::now(); }

uint64_t RandomIncarnation() {
  std::random_device device;
  uint64_t value = 0;
  while (value == 0) {
    value = (uint64_t{device()} << 32) | device();
  }
  return value;
}

// Whether the coordinator's answer stays the same until somebody changes something.
bool IsRefusal(const absl::Status& status) {
  switch (status.code()) {
    case absl::StatusCode::kAlreadyExists:
    case absl::StatusCode::kInvalidArgument:
    case absl::StatusCode::kFailedPrecondition:
    case absl::StatusCode::kPermissionDenied:
    case absl::StatusCode::kUnauthenticated:
    case absl::StatusCode::kUnimplemented:
      return true;
    default:
      return false;
  }
}

}  // namespace

class ControlClient::Impl {
 public:
  Impl(IoLoop* loop, const Transport& transport, std::string coordinator, WorkerNode* node)
      : loop_(loop),
        coordinator_(std::move(coordinator)),
        node_(node),
        transport_(transport),
        // Whether a coordinator that says nothing is gone, the lease finds out (KeepLease).
        channel_(
            transport.MakeChannel(coordinator_, kMaxControlBytes, Transport::Patience::kPatient)),
        stub_(v1::MembershipService::NewStub(channel_)),
        standing_{false, "looking for the coordinator at " + coordinator_} {}

  absl::Status Run() {
    milliseconds backoff = kFirstBackoff;
    bool ever_registered = false;
    while (!stopping()) {
      bool registered = false;
      const absl::Status status = Connect() ? Live(&registered) : Unreachable();
      if (stopping()) {
        break;
      }
      if (registered) {
        ever_registered = true;
        backoff = kFirstBackoff;
      } else if (!ever_registered && IsRefusal(status)) {
        return status;
      }
      SetStanding(false, "cannot join, trying on: " + Describe(status));
      LogOnce(registered, status);
      Sleep(backoff);
      backoff = std::min(backoff * 2, kMaxBackoff);
    }
    return absl::OkStatus();
  }

  void Beat() {
    MutexLock lock(&mutex_);
    beat_ = true;
    changed_.NotifyAll();
  }

  Standing standing() const {
    MutexLock lock(&mutex_);
    return standing_;
  }

  void Stop() {
    MutexLock lock(&mutex_);
    stopping_ = true;
    changed_.NotifyAll();
  }

 private:
  bool stopping() {
    MutexLock lock(&mutex_);
    return stopping_;
  }

  void SetStanding(bool joined, std::string what) {
    MutexLock lock(&mutex_);
    standing_ = {joined, std::move(what)};
  }

  void Sleep(milliseconds duration) {
    const Time deadline = Now() + duration;
    MutexLock lock(&mutex_);
    while (!stopping_ && Now() < deadline) {
      changed_.WaitFor(&mutex_, deadline - Now());
    }
  }

  bool Connect() {
    for (int i = 0; i < 6 && !stopping(); ++i) {
      if (channel_->WaitForConnected(std::chrono::system_clock::now() + kConnectTry)) {
        return true;
      }
    }
    return false;
  }

  absl::Status Unreachable() const {
    const absl::Status why = transport_.Probe(coordinator_, kProbeTimeout);
    const v1::ErrorDetail cause = DetailOf(why);
    return Error(absl::StatusCode::kUnavailable,
                 IsOfTls(why) ? cause.reason() : "COORDINATOR_UNREACHABLE",
                 "no connection to the coordinator at " + coordinator_ +
                     (why.ok() ? "" : ": " + cause.message()))
        .Hint(IsOfTls(why) ? cause.hint()
                           : "check that strata-coordinator runs there, --coordinator, the "
                             "firewall, and that both use --tls-dir or neither does");
  }

  // What is wrong is said once, until it changes.
  void LogOnce(bool registered, const absl::Status& status) {
    const std::string line = Describe(status);
    if (registered) {
      LogWarn({{"coordinator", coordinator_}}, "the coordinator is lost, trying again: " + line);
    } else if (ReasonOf(status) != last_reason_) {
      LogWarn({{"coordinator", coordinator_}}, "cannot join, trying on: " + line);
    }
    last_reason_ = registered ? "" : ReasonOf(status);
  }

  // One life, from registering to the stream's end or the lease's. Why it ended.
  absl::Status Live(bool* registered) {
    const std::shared_ptr<Outbox> outbox = node_->BeginLife(RandomIncarnation());
    {
      MutexLock lock(&mutex_);
      life_ = LifeState();
      life_.lease_end = Now() + kRegisterTimeout;
    }
    v1::WorkerMessage hello;
    *hello.mutable_register_() = node_->Info();
    ControlStream stream(
        loop_, stub_.get(), hello,
        [this](const v1::CoordinatorMessage& message) { OnMessage(message); },
        [this] { OnEnded(); });
    const bool joined = WaitRegistered();
    absl::Status lapsed;
    if (joined) {
      *registered = true;
      SetStanding(true, "joined " + coordinator_ + " as " + hello.register_().name());
      LogInfo({{"coordinator", coordinator_},
               {"node", hello.register_().name()},
               {"incarnation", hello.register_().incarnation()}},
              "joined the cluster");
      std::thread writer([&] {
        while (const auto message = outbox->Next()) {
          if (!stream.Write(*message)) {
            break;
          }
        }
        stream.Cancel();  // Nothing goes out any more; nothing need come in.
      });
      lapsed = KeepLease(outbox.get());
      node_->EndLife();  // Closes the outbox, and so ends the writer.
      writer.join();
    } else {
      node_->EndLife();
      MutexLock lock(&mutex_);
      if (!life_.ended) {
        lapsed = Error(absl::StatusCode::kDeadlineExceeded, "REGISTER_TIMEOUT",
                       "the coordinator at " + coordinator_ + " did not answer the registration");
        stream.Cancel();
      }
    }
    const absl::Status status = stream.Wait();
    if (!lapsed.ok()) {
      return lapsed;
    }
    return status.ok()   ? Error(absl::StatusCode::kUnavailable, "STREAM_ENDED",
                                 "it ended the control stream")
           : *registered ? Annotate(status, "the control stream broke")
                         : status;
  }

  void OnMessage(const v1::CoordinatorMessage& message) {
    {
      MutexLock lock(&mutex_);
      if (message.has_registered()) {
        life_.registered = true;
        life_.terms = message.registered();
        life_.lease_end = Now() + milliseconds(life_.terms.lease_ms());
      } else if (message.has_lease_renewed() &&
                 message.lease_renewed().term() == life_.terms.term()) {
        life_.lease_end = Now() + milliseconds(life_.terms.lease_ms());
      }
      changed_.NotifyAll();
    }
    node_->OnMessage(message);
  }

  void OnEnded() {
    MutexLock lock(&mutex_);
    life_.ended = true;
    changed_.NotifyAll();
  }

  bool WaitRegistered() {
    MutexLock lock(&mutex_);
    while (!life_.registered && !life_.ended && !stopping_ && Now() < life_.lease_end) {
      changed_.WaitFor(&mutex_, life_.lease_end - Now());
    }
    return life_.registered && !stopping_;
  }

  // The incarnation of the process that answers at the coordinator's address now, by a connection
  // of its own; 0: nobody does.
  uint64_t WhoAnswers() const {
    const auto channel = transport_.MakeChannel(coordinator_);
    const auto stub = v1::ShardService::NewStub(channel);
    grpc::ClientContext context;
    context.set_deadline(std::chrono::system_clock::now() + kProbeTimeout);
    v1::ProbeResponse response;
    const grpc::Status status = stub->Probe(&context, v1::ProbeRequest(), &response);
    return status.ok() && response.node().empty() ? response.incarnation() : 0;
  }

  // The lease has lapsed: an error once that ends the life. `same`: who it is of; 0: not known, so
  // that whoever answers may be another one. `answers_since`: since that one answers again;
  // kNever: it does not.
  absl::Status AfterLapse(uint64_t same, Time* answers_since) {
    using lease_policy::Coordinator;
    const uint64_t found = WhoAnswers();
    const Coordinator who = found == 0      ? Coordinator::kNobody
                            : found == same ? Coordinator::kSame
                                            : Coordinator::kAnother;
    MutexLock lock(&mutex_);
    const Time now = Now();
    if (now < life_.lease_end) {
      return absl::OkStatus();  // It was renewed meanwhile.
    }
    if (who != Coordinator::kSame) {
      *answers_since = kNever;
    } else if (*answers_since == kNever) {
      *answers_since = now;
    }
    const auto since = *answers_since != kNever ? now - *answers_since : Time::duration(0);
    if (!lease_policy::EndsLife(who, since, milliseconds(life_.terms.lease_ms()))) {
      return absl::OkStatus();
    }
    return Error(absl::StatusCode::kUnavailable, "LEASE_LAPSED",
                 who == Coordinator::kAnother
                     ? "another coordinator answers at " + coordinator_ +
                           ", so that the lease of the one before is over"
                     : "the coordinator did not renew the lease for " +
                           std::to_string(life_.terms.lease_ms()) + " ms and longer");
  }

  // Heartbeats until the stream ends, a lapsed lease ends the life (then an error) or Stop.
  absl::Status KeepLease(Outbox* outbox) {
    uint64_t same = 0;
    bool said = false;
    Time answers_since = kNever;
    Time next_beat = Now();
    Time next_look{};  // Who answers.
    while (true) {
      uint64_t term = 0;
      {
        MutexLock lock(&mutex_);
        while (!life_.ended && !stopping_ && !beat_ && Now() < next_beat &&
               Now() < std::max(life_.lease_end, next_look)) {
          changed_.WaitFor(&mutex_,
                           std::min(next_beat, std::max(life_.lease_end, next_look)) - Now());
        }
        if (life_.ended || stopping_) {
          return absl::OkStatus();
        }
      }
      if (Lapsed() && Now() >= next_look) {
        if (!std::exchange(said, true)) {
          LogWarn({{"coordinator", coordinator_}},
                  "the lease has lapsed; what is loaded stays until a coordinator answers that is "
                  "another one, or has forgotten this worker");
        }
        RETURN_IF_ERROR(AfterLapse(same, &answers_since));
        next_look = Now() + kLookEvery;
      } else if (!Lapsed() && std::exchange(said, false)) {
        answers_since = kNever;
        LogInfo({{"coordinator", coordinator_}}, "the coordinator has renewed the lease again");
      }
      if (Now() < next_beat && !Asked()) {
        continue;
      }
      if (same == 0 && !Lapsed()) {
        same = WhoAnswers();
      }
      {
        MutexLock lock(&mutex_);
        beat_ = false;
        term = life_.terms.term();
        next_beat = Now() + std::max(kShortestBeat, milliseconds(life_.terms.heartbeat_ms()));
      }
      v1::WorkerMessage message;
      *message.mutable_heartbeat() = node_->MakeHeartbeat(term);
      outbox->Send(std::move(message));
    }
  }

  bool Lapsed() {
    MutexLock lock(&mutex_);
    return lease_policy::HasLapsed(Now().time_since_epoch(), life_.lease_end.time_since_epoch());
  }

  // For a heartbeat out of turn.
  bool Asked() {
    MutexLock lock(&mutex_);
    return beat_;
  }

  struct LifeState {
    bool registered = false;
    bool ended = false;
    v1::Registered terms;
    Time lease_end{};
  };

  IoLoop* const loop_;
  const std::string coordinator_;
  WorkerNode* const node_;
  const Transport transport_;
  const std::shared_ptr<grpc::Channel> channel_;
  const std::unique_ptr<v1::MembershipService::Stub> stub_;
  std::string last_reason_;  // Of Run's thread.

  mutable Mutex mutex_;
  CondVar changed_;
  Standing standing_ STRATA_GUARDED_BY(mutex_);
  bool stopping_ STRATA_GUARDED_BY(mutex_) = false;
  bool beat_ STRATA_GUARDED_BY(mutex_) = false;
  LifeState life_ STRATA_GUARDED_BY(mutex_);
};

ControlClient::Standing ControlClient::standing() const { return impl_->standing(); }
ControlClient::ControlClient(IoLoop* loop, const Transport& transport, std::string coordinator,
                             WorkerNode* node)
    : impl_(std::make_unique<Impl>(loop, transport, std::move(coordinator), node)) {}
ControlClient::~ControlClient() = default;
absl::Status ControlClient::Run() { return impl_->Run(); }
void ControlClient::Beat() { impl_->Beat(); }
void ControlClient::Stop() { impl_->Stop(); }

}  // namespace strata
