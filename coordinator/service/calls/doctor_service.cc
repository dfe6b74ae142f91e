#include "coordinator/service/calls/doctor_service.h"

#include <grpcpp/channel.h>
#include <grpcpp/client_context.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <map>
#include <optional>
#include <thread>
#include <utility>

#include "common/app/log.h"
#include "common/rpc/peer_dial.h"
#include "common/rpc/status.h"
#include "common/status.h"
#include "coordinator/service/calls/audited_call.h"

namespace strata {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

constexpr milliseconds kDefaultTimeout{60'000};
constexpr milliseconds kLeastTimeout{1000};
// Of one worker, for its facts; and of one way, for what is heard nothing of.
constexpr milliseconds kExamineTimeout{8000};
constexpr milliseconds kDialTimeout{3000};
// Workers that are asked at the same time.
constexpr size_t kAtOnce = 16;
constexpr uint32_t kMostLogLines = kKeptLogLines;
// A way is measured again that is slower than this, bytes a second, and than that share of what
// placing layers goes by; so often, and so many of them. One below kHopeless is not tried on.
constexpr double kSuspectBelow = 125e6;
constexpr double kSuspectShare = 0.5;
constexpr double kHopeless = 12.5e6;
constexpr size_t kTriesOfSuspects = 4;
constexpr size_t kMostSuspects = 64;

// Runs `task` for 0 .. count - 1 on a few threads, and waits for all.
void ForEach(size_t count, const std::function<void(size_t)>& task) {
  std::atomic<size_t> next = 0;
  std::vector<std::thread> threads;
  for (size_t i = 0; i < std::min(count, kAtOnce); ++i) {
    threads.emplace_back([&] {
      for (size_t at = next++; at < count; at = next++) task(at);
    });
  }
  for (std::thread& thread : threads) thread.join();
}

double WallClockS() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

// What placing layers goes by, of the way from the first node to the second.
void AddPlanned(const std::map<std::string, const v1::Node*>& nodes, v1::LinkFacts* link) {
  // The coordinator's own ways are kept with the nodes that they lead to.
  const auto node = nodes.find(link->from().empty() ? link->to() : link->from());
  if (node == nodes.end() || link->to().empty()) {
    return;
  }
  for (const v1::Node::Link& known : node->second->links()) {
    if (known.peer() == (link->from().empty() ? "" : link->to()) && known.error().empty()) {
      link->set_planned_bytes_per_s(known.bytes_per_s());
      link->set_planned_latency_ms(known.latency_ms());
    }
  }
}

}  // namespace

// One call: members are asked first, then dial each other, each one other at a time, so that no
// measurement shares a link with another in the same direction.
class DoctorServiceImpl::Round {
 public:
  Round(const DoctorServiceImpl* doctor, CallContext* context, const v1::DiagnoseRequest& request,
        CallWriter<v1::DiagnoseProgress>* writer, std::vector<v1::Node> nodes)
      : doctor_(doctor),
        context_(context),
        request_(request),
        writer_(writer),
        end_(steady_clock::now() +
             (request.timeout_ms() == 0
                  ? kDefaultTimeout
                  : std::max(kLeastTimeout, milliseconds(request.timeout_ms())))),
        nodes_(std::move(nodes)) {
    for (const v1::Node& node : nodes_) {
      by_name_[node.name()] = &node;
      if (node.state() != "lost") members_.emplace_back().node = &node;
    }
  }

  void Run() {
    for (const v1::Node& node : nodes_) {
      v1::DiagnoseProgress progress;
      *progress.mutable_node() = node;
      Write(progress);
    }
    Say("asking " + std::to_string(members_.size()) + " nodes how they are");
    ForEach(members_.size(), [this](size_t i) { Examine(&members_[i]); });
    for (Member& member : members_) {
      v1::DiagnoseProgress progress;
      *progress.mutable_machine() = std::move(member.facts);
      Write(progress);
    }
    if (!request_.without_dialling() && !members_.empty()) {
      Dial();
      DialSuspects();
    }
  }

 private:
  struct Member {
    const v1::Node* node = nullptr;
    v1::MachineFacts facts;
    bool asked = false;  // It says something.
  };
  struct Suspect {
    size_t from = 0;
    size_t to = 0;
    v1::LinkFacts link;
  };

  bool Over() const { return context_->IsCancelled() || steady_clock::now() >= end_; }

  std::chrono::system_clock::time_point Deadline(milliseconds at_most) const {
    const auto left = std::chrono::duration_cast<milliseconds>(end_ - steady_clock::now());
    return std::chrono::system_clock::now() + std::clamp(left, milliseconds(1), at_most);
  }

  void Write(const v1::DiagnoseProgress& progress) { (void)writer_->Write(progress); }
  void Say(const std::string& doing) {
    v1::DiagnoseProgress progress;
    progress.set_doing(doing);
    Write(progress);
  }

  // Of whoever is called, while the call lasts.
  std::unique_ptr<v1::DiagnosisService::Stub> StubOf(const v1::Node& node) const {
    return v1::DiagnosisService::NewStub(doctor_->transport_->MakeChannel(node.address()));
  }

  void Examine(Member* member) const {
    v1::ExamineRequest request;
    request.set_log_lines(std::min(request_.log_lines(), kMostLogLines));
    request.set_metrics(request_.metrics());
    grpc::ClientContext call;
    call.set_deadline(Deadline(kExamineTimeout));
    const double before_s = WallClockS();
    const absl::Status status =
        FromGrpc(StubOf(*member->node)->Examine(&call, request, &member->facts));
    const double after_s = WallClockS();
    member->asked = status.ok() && member->facts.node() == member->node->name();
    if (!member->asked) {
      const absl::Status why = status.ok() ? WrongNode(*member) : status;
      member->facts.Clear();
      *member->facts.mutable_error() = DetailOf(why);
      if (absl::IsUnimplemented(why)) {
        member->facts.mutable_error()->set_reason("UNIMPLEMENTED");
      }
      member->facts.set_program("strata-worker");
      member->facts.set_node(member->node->name());
      member->facts.set_version(member->node->version());
      return;
    }
    constexpr double kLeastErrorS = 0.001;
    member->facts.set_clock_offset_s(member->facts.unix_time_s() - (before_s + after_s) / 2);
    member->facts.set_clock_error_s((after_s - before_s) / 2 + kLeastErrorS);
  }

  static absl::Status WrongNode(const Member& member) {
    return Error(absl::StatusCode::kFailedPrecondition, "WRONG_NODE",
                 "at " + member.node->address() + " somebody else answers");
  }

  // The last member is the coordinator.
  PeerToDial Target(size_t index) const {
    if (index == members_.size()) {
      return {};
    }
    const v1::Node& node = *members_[index].node;
    return {.node = node.name(), .incarnation = node.incarnation(), .address = node.address()};
  }

  std::optional<v1::LinkFacts> DialFrom(size_t from, size_t to) const {
    const PeerToDial target = Target(to);
    if (from == members_.size()) {
      return DialPeer(*doctor_->transport_, "", target, kDialTimeout,
                      [this] { return context_->IsCancelled(); });
    }
    if (!members_[from].asked) {
      return std::nullopt;
    }
    v1::DialPeersRequest request;
    request.set_timeout_ms(static_cast<uint32_t>(kDialTimeout.count()));
    v1::DialPeersRequest::Peer* peer = request.add_peers();
    peer->set_node(target.node);
    peer->set_incarnation(target.incarnation);
    peer->set_address(target.address);
    v1::DialPeersResponse response;
    grpc::ClientContext call;
    call.set_deadline(Deadline(kDialTimeout * 6));
    const absl::Status status =
        FromGrpc(StubOf(*members_[from].node)->DialPeers(&call, request, &response));
    return status.ok() && response.links_size() == 1 ? std::optional(response.links(0))
                                                     : std::nullopt;
  }

  void Dial() {
    const size_t all = members_.size() + 1;
    for (size_t round = 1; round < all; ++round) {
      if (Over()) {
        v1::DiagnoseProgress progress;
        progress.set_not_looked_at(std::to_string((all - round) * all) + " of " +
                                   std::to_string((all - 1) * all) + " ways between members");
        Write(progress);
        return;
      }
      Say("dialling each other, round " + std::to_string(round) + " of " + std::to_string(all - 1));
      std::vector<std::optional<v1::LinkFacts>> links(all);
      ForEach(all, [&](size_t from) { links[from] = DialFrom(from, (from + round) % all); });
      for (size_t from = 0; from < all; ++from) {
        std::optional<v1::LinkFacts>& link = links[from];
        if (!link.has_value()) continue;
        AddPlanned(by_name_, &*link);
        if (IsSuspect(*link)) {
          suspects_.push_back({from, (from + round) % all, *std::move(link)});
        } else {
          WriteLink(*std::move(link));
        }
      }
    }
  }

  // Those again that were slower than when they were measured first, with nobody else dialling:
  // whoever was short of a processor then is not slow for that.
  void DialSuspects() {
    for (size_t i = 0; i < suspects_.size(); ++i) {
      Suspect& suspect = suspects_[i];
      v1::LinkFacts& link = suspect.link;
      for (size_t n = 0; n < kTriesOfSuspects && i < kMostSuspects && IsSuspect(link) && !Over();
           ++n) {
        if (n == 0) {
          Say("dialling again where it was slow, " + std::to_string(i + 1) + " of " +
              std::to_string(suspects_.size()));
        }
        const std::optional<v1::LinkFacts> again = DialFrom(suspect.from, suspect.to);
        if (!again.has_value() || again->has_error()) break;
        link.set_bytes_per_s(std::max(link.bytes_per_s(), again->bytes_per_s()));
        link.set_round_trip_ms(std::min(link.round_trip_ms(), again->round_trip_ms()));
        if (again->bytes_per_s() < kHopeless) break;  // It takes seconds, and says the same.
      }
      WriteLink(std::move(link));
    }
  }

  static bool IsSuspect(const v1::LinkFacts& link) {
    return !link.has_error() && link.bytes_per_s() < kSuspectBelow &&
           link.bytes_per_s() < kSuspectShare * link.planned_bytes_per_s();
  }

  void WriteLink(v1::LinkFacts link) {
    v1::DiagnoseProgress progress;
    *progress.mutable_link() = std::move(link);
    Write(progress);
  }

  const DoctorServiceImpl* const doctor_;
  CallContext* const context_;
  const v1::DiagnoseRequest& request_;
  CallWriter<v1::DiagnoseProgress>* const writer_;
  const steady_clock::time_point end_;
  const std::vector<v1::Node> nodes_;
  std::map<std::string, const v1::Node*> by_name_;
  std::vector<Member> members_;
  std::vector<Suspect> suspects_;
};

DoctorServiceImpl::DoctorServiceImpl(Coordinator* coordinator, const Transport* transport,
                                     Refusals* refusals, DoctorOptions options)
    : coordinator_(coordinator),
      transport_(transport),
      refusals_(refusals),
      options_(std::move(options)),
      threads_({.threads = 2,
                .waiting = 2,
                .name = "doctor",
                .hint = "another diagnosis runs: try again in a moment"}) {}

grpc::Service* DoctorServiceImpl::NewService() {
  service_ = std::make_unique<v1::DoctorService::AsyncService>();
  return service_.get();
}

void DoctorServiceImpl::Serve(IoLoop* loop) {
  using Async = v1::DoctorService::AsyncService;
  BlockingMethods(service_.get(), loop, &threads_)
      .Serve(&Async::RequestDiagnose, std::bind_front(&DoctorServiceImpl::Diagnose, this));
}

v1::MachineFacts DoctorServiceImpl::Self(const v1::DiagnoseRequest& request) const {
  v1::MachineFacts facts = Examine(options_.examine);
  for (std::string& line : RecentLogLines(request.log_lines())) {
    facts.add_log_lines(std::move(line));
  }
  if (request.metrics() && options_.metrics) {
    facts.set_metrics(options_.metrics().value_or(""));
  }
  return facts;
}

grpc::Status DoctorServiceImpl::Diagnose(CallContext* context, const v1::DiagnoseRequest* request,
                                         CallWriter<v1::DiagnoseProgress>* writer) {
  if (const absl::Status may =
          CheckOperator(context->grpc(), coordinator_->keys(), options_.audit, "Diagnose");
      !may.ok()) {
    return ToGrpc(may);
  }
  auto nodes = coordinator_->nodes()->List();
  if (!nodes.ok()) {
    return ToGrpc(nodes.status());
  }
  v1::DiagnoseProgress progress;
  *progress.mutable_machine() = Self(*request);
  (void)writer->Write(progress);
  for (v1::RefusedFacts& refused : refusals_->Recent()) {
    *progress.mutable_refused() = std::move(refused);
    (void)writer->Write(progress);
  }
  Round(this, context, *request, writer, *std::move(nodes)).Run();
  return grpc::Status::OK;
}

}  // namespace strata
