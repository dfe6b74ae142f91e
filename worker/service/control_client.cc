#include "worker/service/control_client.h"

#include <grpcpp/channel.h>
#include <grpcpp/client_context.h>

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
#include "worker/node/membership.h"
#include "worker/service/control_stream.h"

namespace strata {
namespace {

constexpr milliseconds kConnectTry{500};
constexpr milliseconds kProbeTimeout{1000};

TimePoint Now() { return SystemClock().Now(); }

uint64_t RandomIncarnation() {
  std::random_device device;
  uint64_t value = 0;
  while (value == 0) {
    value = (uint64_t{device()} << 32) | device();
  }
  return value;
}

}  // namespace

class ControlClient::Impl {
 public:
  Impl(IoLoop* loop, const Transport& transport, std::string coordinator, WorkerNode* node)
      : loop_(loop),
        coordinator_(std::move(coordinator)),
        node_(node),
        transport_(transport),
        // Whether a coordinator that says nothing is gone, the lease finds out.
        channel_(
            transport.MakeChannel(coordinator_, kMaxControlBytes, Transport::Patience::kPatient)),
        stub_(v1::MembershipService::NewStub(channel_)),
        standing_{false, "looking for the coordinator at " + coordinator_},
        membership_(coordinator_) {}

  absl::Status Run() {
    while (!stopping()) {
      bool registered = false;
      const absl::Status status = Connect() ? Live(&registered) : Unreachable();
      if (stopping()) {
        break;
      }
      {
        MutexLock lock(&mutex_);
        if (membership_.IsFinal(status)) {
          return status;
        }
      }
      SetStanding(false, "cannot join, trying on: " + Describe(status));
      LogOnce(registered, status);
      // Apart from the coordinator this is the only act.
      NextAct();
    }
    return absl::OkStatus();
  }

  void Beat() {
    MutexLock lock(&mutex_);
    membership_.BeatSoon();
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

  // Waits for it. kEndLife too once the client stops.
  MembershipStep NextAct() {
    MutexLock lock(&mutex_);
    while (!stopping_) {
      const TimePoint now = Now();
      const MembershipStep step = membership_.Next(now);
      if (step.act != MembershipAct::kWait) {
        return step;
      }
      changed_.WaitFor(&mutex_, step.until - now);
    }
    return {.act = MembershipAct::kEndLife};
  }

  bool Connect() {
    for (int i = 0; i < 6 && !stopping(); ++i) {
      if (channel_->WaitForConnected(std::chrono::system_clock::now() + kConnectTry)) {
        return true;
      }
    }
    return false;
  }

  absl::Status Unreachable() {
    {
      MutexLock lock(&mutex_);
      membership_.OnUnreachable(Now());
    }
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
      membership_.BeginLife(Now());
    }
    v1::WorkerMessage hello;
    *hello.mutable_register_() = node_->Info();
    ControlStream stream(
        loop_, stub_.get(), hello,
        [this](const v1::CoordinatorMessage& message) { OnMessage(message); },
        [this] { OnEnded(); });
    std::thread writer;  // Once it is registered.
    for (MembershipStep step = NextAct(); step.act != MembershipAct::kEndLife; step = NextAct()) {
      if (!writer.joinable()) {
        SetStanding(true, "joined " + coordinator_ + " as " + hello.register_().name());
        LogInfo({{"coordinator", coordinator_},
                 {"node", hello.register_().name()},
                 {"incarnation", hello.register_().incarnation()}},
                "joined the cluster");
        writer = std::thread([&] { WriteAll(outbox.get(), &stream); });
      }
      Do(step, outbox.get());
    }
    node_->EndLife();  // Closes the outbox, and so ends the writer.
    if (writer.joinable()) {
      writer.join();
    }
    stream.Cancel();
    const absl::Status status = stream.Wait();
    MutexLock lock(&mutex_);
    *registered = membership_.registered();
    return membership_.EndLife(status, Now());
  }

  static void WriteAll(Outbox* outbox, ControlStream* stream) {
    while (const auto message = outbox->Next()) {
      if (!stream->Write(*message)) {
        break;
      }
    }
    stream->Cancel();  // Nothing goes out any more; nothing need come in.
  }

  // Of a life that is registered.
  void Do(const MembershipStep& step, Outbox* outbox) {
    switch (step.act) {
      case MembershipAct::kSendHeartbeat: {
        v1::WorkerMessage message;
        *message.mutable_heartbeat() = node_->MakeHeartbeat(step.term);
        outbox->Send(std::move(message));
        return;
      }
      case MembershipAct::kAskWhoAnswers: {
        const uint64_t found = WhoAnswers();
        MutexLock lock(&mutex_);
        membership_.OnAnswer(found, Now());
        return;
      }
      case MembershipAct::kTellLapsed:
        LogWarn({{"coordinator", coordinator_}},
                "the lease has lapsed; what is loaded stays until a coordinator answers that is "
                "another one, or has forgotten this worker");
        return;
      case MembershipAct::kTellRenewed:
        LogInfo({{"coordinator", coordinator_}}, "the coordinator has renewed the lease again");
        return;
      default:
        return;
    }
  }

  void OnMessage(const v1::CoordinatorMessage& message) {
    {
      MutexLock lock(&mutex_);
      membership_.OnMessage(message, Now());
      changed_.NotifyAll();
    }
    node_->OnMessage(message);
  }

  void OnEnded() {
    MutexLock lock(&mutex_);
    membership_.OnStreamEnded();
    changed_.NotifyAll();
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
  Membership membership_ STRATA_GUARDED_BY(mutex_);
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
