#include "worker/service/worker_process.h"

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

#include "common/app/flags.h"
#include "common/app/log.h"
#include "common/app/service_manager.h"
#include "common/app/service_reporter.h"
#include "common/app/signals.h"
#include "common/certificates/revocations.h"
#include "common/joining/certificate_keeper.h"
#include "common/joining/followed_files.h"
#include "common/model/rank_outputs.h"
#include "common/platform/platform.h"
#include "common/rpc/address.h"
#include "common/rpc/io_ping.h"
#include "common/rpc/link.h"
#include "common/rpc/link_service.h"
#include "common/status.h"
#include "common/units.h"
#include "worker/backend/kinds/make_backend.h"
#include "worker/service/control_client.h"
#include "worker/service/diagnosis_service.h"
#include "worker/service/examination.h"
#include "worker/service/grpc_link_dialer.h"
#include "worker/service/grpc_weight_sources.h"
#include "worker/service/kv_service.h"
#include "worker/service/ranks_service.h"
#include "worker/service/weights_service.h"
#include "worker/service/worker_metrics.h"
#include "worker/service/worker_node.h"
#include "worker/weights/sourced_blobs.h"
#include "worker/weights/weight_cache.h"

namespace strata {
namespace {

constexpr uint16_t kFirstPort = 7071;
constexpr uint16_t kPortsTried = 100;
constexpr double kMeasureSeconds = 0.6;
constexpr uint64_t kMeasureBytes = uint64_t{256} << 20;
constexpr milliseconds kPeerTimeout{4000};
constexpr milliseconds kJoinTimeout{5000};  // Of one worker that is asked for its rank.
constexpr milliseconds kDrainPoll{10};
// Buffers of links and RPCs, beside what is resident before anything is loaded.
constexpr uint64_t kBufferBytes = uint64_t{64} << 20;

// Answers for the node, which is made once the port is known: a listener comes first.
class LateHandler : public LinkHandler {
 public:
  void Set(LinkHandler* handler) { handler_ = handler; }
  Identity identity() const override {
    LinkHandler* handler = handler_;
    return handler == nullptr ? Identity() : handler->identity();
  }
  absl::StatusOr<std::shared_ptr<LinkSink>> OnOpen(const v1::LinkOpen& open,
                                                   const std::string& peer,
                                                   std::shared_ptr<InboundLink> link) override {
    LinkHandler* handler = handler_;
    if (handler == nullptr) {
      return Error(absl::StatusCode::kUnavailable, "STARTING", "the worker is starting");
    }
    return handler->OnOpen(open, peer, std::move(link));
  }

 private:
  std::atomic<LinkHandler*> handler_ = nullptr;
};

// Listens where the flags say, or on the first free port from 7071 of the address that leads to
// the coordinator.
absl::StatusOr<std::unique_ptr<RpcServer>> Listen(const WorkerOptions& options,
                                                  const Transport& transport,
                                                  const std::vector<IoService*>& services) {
  if (!options.listen.empty()) {
    RETURN_IF_ERROR(transport.CheckAddress(options.listen, "--listen"));
    return RpcServer::Start(transport, options.listen, services);
  }
  ASSIGN_OR_RETURN(const HostPort coordinator, ParseHostPort(options.coordinator));
  HostPort local;
  ASSIGN_OR_RETURN(local.host, LocalAddressTowards(coordinator));
  absl::Status status;
  for (uint16_t i = 0; i < kPortsTried; ++i) {
    local.port = static_cast<uint16_t>(kFirstPort + i);
    status = CanListen(local);
    if (status.ok()) {
      auto server = RpcServer::Start(transport, local.ToString(), services);
      if (server.ok() || ReasonOf(server.status()) != "ADDRESS_IN_USE") {
        return server;
      }
      status = server.status();
    } else if (ReasonOf(status) != "ADDRESS_IN_USE") {
      break;
    }
  }
  return status;
}

// HTTP without authentication: off loopback it needs --insecure, whatever gRPC has.
absl::Status CheckMetricsAddress(const WorkerOptions& options) {
  if (options.metrics_listen.empty()) {
    return absl::OkStatus();
  }
  TransportSecurity security;
  security.insecure = options.security.insecure;
  ASSIGN_OR_RETURN(const Transport transport, Transport::Make(security));
  RETURN_IF_ERROR(transport.CheckAddress(options.metrics_listen, "--metrics-listen"));
  ASSIGN_OR_RETURN(const HostPort address, ParseHostPort(options.metrics_listen));
  return CanListen(address);
}

// Where followers listen for other ranks: as the flag says, else where the worker listens.
absl::StatusOr<HostPort> RanksAddress(const WorkerOptions& options, const Transport& transport,
                                      const RpcServer& server) {
  if (options.ranks_listen.empty()) {
    ASSIGN_OR_RETURN(HostPort bound, ParseHostPort(server.address()));
    bound.port = 0;
    return bound;
  }
  RETURN_IF_ERROR(transport.CheckAddress(options.ranks_listen, "--ranks-listen"));
  ASSIGN_OR_RETURN(HostPort address, ParseHostPort(options.ranks_listen));
  if (const absl::Status status = CanListen(address); !status.ok()) {
    return Error(status.code(), ReasonOf(status),
                 "--ranks-listen: " + std::string(status.message()))
        .Hint("give it an address of this machine, and a port that is free");
  }
  return address;
}

WorkerReport ReportOf(const WorkerNode& node, const Transport& transport) {
  WorkerReport report = node.Report();
  if (const auto files = transport.tls(); files != nullptr) {
    report.certificate_end_s = files->ends_first.not_after_s;
  }
  return report;
}

// Null when none are wanted.
absl::StatusOr<std::unique_ptr<MetricsServer>> ServeMetrics(const WorkerOptions& options,
                                                            std::function<WorkerReport()> report) {
  if (options.metrics_listen.empty()) {
    return nullptr;
  }
  ASSIGN_OR_RETURN(auto metrics, MetricsServer::Start(options.metrics_listen, std::move(report)));
  std::fprintf(stderr, "metrics listening on %s\n", metrics->address().c_str());
  return metrics;
}

absl::StatusOr<std::string> AdvertisedAddress(const WorkerOptions& options,
                                              const RpcServer& server) {
  if (!options.advertise.empty()) {
    return options.advertise;
  }
  ASSIGN_OR_RETURN(HostPort bound, ParseHostPort(server.address()));
  if (IsAnyAddress(bound.host)) {
    ASSIGN_OR_RETURN(const HostPort coordinator, ParseHostPort(options.coordinator));
    ASSIGN_OR_RETURN(bound.host, LocalAddressTowards(coordinator));
  }
  return bound.ToString();
}

v1::PeerMeasured Measure(const Transport& transport, const v1::MeasurePeer& peer) {
  v1::PeerMeasured measured;
  const auto speed =
      MeasureLink(transport, peer.address(), peer.node(), peer.incarnation(), kPeerTimeout);
  if (speed.ok()) {
    measured.set_latency_ms(speed->latency_ms);
    measured.set_bytes_per_s(speed->bytes_per_s);
  } else {
    *measured.mutable_error() = DetailOf(speed.status());
  }
  return measured;
}

// What ends the process takes beside the requests in flight.
constexpr nanoseconds kStopTime = std::chrono::seconds(15);

// One line for people.
std::string Summary(const ControlClient& control, const WorkerReport& report) {
  std::string what = control.standing().what;
  for (const StageReport& stage : report.stages) {
    what += "; " + stage.model + " stage " + std::to_string(stage.stage) + ", " +
            FormatSize(stage.memory_bytes);
  }
  return what + (report.stages.empty() ? "; holds no layers" : "");
}

// Those that steps and heartbeats go through.
std::vector<ServiceReporter::Watched> WatchedThreads(const ControlClient* control, IoLoop* loop,
                                                     const WorkerNode* node) {
  using Answer = std::function<void(const std::string& status)>;
  return {{"the thread of gRPC",
           [loop](const Answer& answer) { PingIoLoop(loop, [answer] { answer(""); }); }},
          // It waits for the node's lock, which everything that is said to the worker takes.
          {"the node",
           [control, node](const Answer& answer) { answer(Summary(*control, node->Report())); }}};
}

// Joins, and stays until a refusal that is final, or a stop signal and the end of what was loaded,
// for which it waits up to `drain_timeout`.
absl::Status Serve(ControlClient* control, IoLoop* loop, WorkerNode* node,
                   nanoseconds drain_timeout) {
  const ServiceManager manager = ServiceManagerOfProcess();
  ServiceReporter reporter(manager, WatchedThreads(control, loop, node));
  std::atomic<bool> ended = false;
  absl::Status status;
  std::thread thread([&] {
    status = control->Run();
    ended = true;
  });
  reporter.Start();
  bool ready = !manager.present();
  while (!ended && !WaitForStopSignal(milliseconds(100))) {
    if (!ready && control->standing().joined) {
      ready = true;
      manager.notify("READY=1\n" + StatusLine(control->standing().what));
    }
  }
  if (manager.present()) {
    manager.notify(
        StoppingLines("stopping once requests in flight ended", drain_timeout + kStopTime));
  }
  if (!ended && !node->Empty()) {
    LogInfo({{"drain_timeout_ms", ToMs(drain_timeout)}}, "stopping once requests in flight ended");
    node->Leave();
    control->Beat();
    const auto deadline = std::chrono::steady_clock::now() + drain_timeout;
    while (!ended && !node->Empty() && std::chrono::steady_clock::now() < deadline) {
      std::this_thread::sleep_for(kDrainPoll);
    }
  }
  control->Stop();
  thread.join();
  reporter.Stop();
  return status;
}

// Of several, what each has.
void LogDevices(const DeviceFacts& facts, const DeviceSpeed& speed) {
  for (size_t i = 0; i < facts.devices.size(); ++i) {
    const DividingDevice& device = facts.devices[i];
    const double share = 100.0 * device.of_stage.share.size() / kShareParts;
    const double read =
        speed.device_read_bytes_per_s.empty() ? 0 : speed.device_read_bytes_per_s[i];
    LogInfo({{"gpu", uint64_t{device.index}},
             {"device", device.name},
             {"percent_of_stages", static_cast<uint64_t>(share + 0.5)},
             {"memory", FormatSize(device.of_stage.memory_bytes)},
             {"reads_per_s", FormatSize(static_cast<uint64_t>(read))}},
            "a GPU of the worker");
  }
}

TransportSecurity SecurityOf(const WorkerOptions& options) {
  TransportSecurity security = options.security;
  security.on_refused_client = [](const absl::Status& why) {
    LogWarn({}, "a connection was refused: " + Describe(why));
  };
  FollowTlsFiles(options.data_dir, &security);
  return security;
}

// Takes what the coordinator says is revoked, and ends what such have open.
void TakeRevoked(const v1::Trust& trust, LiveTls* live, RpcServer* server) {
  Revocations revocations;
  for (const v1::RevokedHolder& one : trust.revoked()) {
    for (const CertificateRole role : kCertificateRoles) {
      if (one.role() == CertificateRoleName(role)) {
        revocations.Add({role, one.name(), one.issued_until()});
      }
    }
  }
  if (revocations == live->revocations()) {
    return;
  }
  live->SetRevocations(std::move(revocations));
  const size_t ended = server->EndRevokedCalls();
  LogInfo({{"ended_calls", uint64_t{ended}}}, "the coordinator has revoked certificates");
}

// Null in plain text.
std::unique_ptr<CertificateKeeper> KeepCertificate(const WorkerOptions& options,
                                                   const Transport& transport, RpcServer* server) {
  if (transport.live() == nullptr) {
    return nullptr;
  }
  CertificateKeeperOptions keeping;
  keeping.node = options.name;
  keeping.renew_before_s =
      std::chrono::duration_cast<std::chrono::seconds>(options.renew_before).count();
  keeping.on_trust = [live = transport.live(), server](const v1::Trust& trust) {
    TakeRevoked(trust, live.get(), server);
  };
  keeping.on_failed = [](const absl::Status& why) {
    LogWarn({}, "the certificate of this worker cannot be renewed: " + Describe(why));
  };
  auto keeper = std::make_unique<CertificateKeeper>(
      std::move(keeping), transport.live(), CoordinatorAsSource(transport, options.coordinator));
  keeper->Start();
  return keeper;
}

}  // namespace

absl::Status RunWorker(const WorkerOptions& options) {
  ASSIGN_OR_RETURN(const Transport transport, Transport::Make(SecurityOf(options)));
  RETURN_IF_ERROR(transport.CheckServes(""));
  RETURN_IF_ERROR(transport.CheckAddress(options.coordinator, "--coordinator"));
  RETURN_IF_ERROR(CheckMetricsAddress(options));
  KindOptions kinds;
  kinds.cpu = {
      .threads = static_cast<uint32_t>(options.threads), .isa = options.isa, .pin = options.pin};
  kinds.devices = {.choice = options.devices,
                   .memory_bytes = options.memory_given ? options.memory_bytes : 0};
  kinds.any.debug_log = [](const std::string& line) { LogDebug({}, line); };
  kinds.any.warning_log = [](const std::string& line) { LogWarn({}, line); };
  ASSIGN_OR_RETURN(const std::unique_ptr<Backend> backend, MakeBackend(options.backend, kinds));
  ASSIGN_OR_RETURN(const std::unique_ptr<DirectoryLock> lock,
                   DirectoryLock::Acquire(options.data_dir));
  ASSIGN_OR_RETURN(const std::unique_ptr<WeightCache> cache,
                   WeightCache::Open(options.data_dir + "/cache", options.cache_limit_bytes));
  LateHandler handler;
  LinkServiceOptions link_options;
  link_options.max_links = static_cast<uint32_t>(options.max_links);
  LinkService links(&handler, link_options);
  BlobFetcher fetcher(cache.get(), {});
  const auto self = [&handler] { return handler.identity(); };
  WeightsService weights({}, cache.get(), &fetcher, self);
  KvService kv({}, self);
  RanksService ranks(self);
  DiagnosisService diagnosis(&transport);
  ASSIGN_OR_RETURN(const std::unique_ptr<RpcServer> server,
                   Listen(options, transport, {&links, &weights, &kv, &ranks, &diagnosis}));
  std::fprintf(stderr, "listening on %s\n", server->address().c_str());

  GrpcWeightSources sources(transport, options.coordinator, self);
  SourcedBlobs blobs(&sources, {}, [](const std::string& line) { LogWarn({}, line); });
  GrpcLinkDialer dialer(server->loop(), transport);
  const SystemClock clock;
  WorkerNodeOptions node_options;
  node_options.name = options.name;
  ASSIGN_OR_RETURN(node_options.address, AdvertisedAddress(options, *server));
  ASSIGN_OR_RETURN(const HostPort dialled, ParseHostPort(node_options.address));
  if (absl::Status named = transport.CheckServes(dialled.host); !named.ok()) {
    return Annotate(named, "others dial node '" + options.name + "' at " + node_options.address);
  }
  node_options.coordinator = options.coordinator;
  node_options.version = kVersion;
  node_options.keep_packed = options.packed_cache == "on";
  node_options.standby_limit_bytes = options.standby_limit_bytes;
  node_options.standby_reserve_bytes = options.standby_reserve_bytes;
  ASSIGN_OR_RETURN(
      node_options.speed,
      backend->MeasureSpeed(kMeasureSeconds, MeasuredBytes(kMeasureBytes, options.memory_bytes,
                                                           ResidentMemoryBytes())));
  const MemoryBudget memory =
      BudgetOf(options, backend->facts(), ResidentMemoryBytes(), kBufferBytes);
  node_options.memory_bytes = memory.bytes;
  node_options.fixed_bytes = memory.fixed_bytes;
  node_options.host_memory_bytes = memory.host_bytes;
  node_options.host_fixed_bytes = memory.host_fixed_bytes;
  if (memory.host_bytes != 0 && memory.host_fixed_bytes >= memory.host_bytes) {
    return Error(absl::StatusCode::kInvalidArgument, "BAD_FLAGS",
                 "--host-memory " + FormatSize(memory.host_bytes) +
                     " leaves nothing for models: the worker itself and its buffers take " +
                     FormatSize(memory.host_fixed_bytes))
        .Hint("give it more of the host's memory");
  }
  if (node_options.fixed_bytes >= node_options.memory_bytes) {
    return Error(absl::StatusCode::kInvalidArgument, "BAD_FLAGS",
                 "--memory " + FormatSize(node_options.memory_bytes) +
                     " leaves nothing for models: the worker itself and its buffers take " +
                     FormatSize(node_options.fixed_bytes))
        .Hint("give it more memory, or fewer --threads");
  }
  const std::string large_pages = LargePageMode();
  LogInfo({{"node", options.name},
           {"address", node_options.address},
           {"backend", backend->name()},
           {"isa", backend->facts().kind},
           {"device", backend->facts().name},
           {"threads", backend->facts().threads},
           {"placed", backend->facts().placed},
           {"large_pages", large_pages.empty() ? "not known" : large_pages},
           {"memory", FormatSize(node_options.memory_bytes)},
           {"host_memory", FormatSize(node_options.host_memory_bytes)},
           {"reads_per_s", FormatSize(static_cast<uint64_t>(node_options.speed.read_bytes_per_s))},
           {"data_dir", options.data_dir}},
          "the worker starts");
  LogDevices(backend->facts(), node_options.speed);
  WorkerNodeParts parts;
  parts.backend = backend.get();
  parts.cache = cache.get();
  parts.fetcher = &fetcher;
  parts.blobs = &blobs;
  parts.dialer = &dialer;
  parts.clock = &clock;
  ASSIGN_OR_RETURN(const HostPort ranks_at, RanksAddress(options, transport, *server));
  parts.ranks = {
      .host = ranks_at.host,
      .port = ranks_at.port,
      .patience = options.rank_patience,
      .wire = transport.secure() ? RankWire::kTls : RankWire::kPlain,
      .ask = [&transport](const RankPeer& peer, uint64_t deployment, const RankToJoin& join) {
        return AskToJoin(transport, peer, deployment, join, kJoinTimeout);
      }};
  parts.weight_traffic = [&blobs, &weights]() -> WeightTraffic {
    return {.fetched_bytes = blobs.from_workers_bytes(),
            .sent_bytes = weights.sent_bytes(),
            .bad_blobs = blobs.bad_blobs()};
  };
  // A thread that hangs cannot be ended in good order.
  parts.give_up = [] { std::_Exit(EXIT_FAILURE); };
  parts.measure = [&transport](const v1::MeasurePeer& peer) { return Measure(transport, peer); };
  absl::Status status;
  {
    WorkerNode node(node_options, parts);
    handler.Set(&node);
    ranks.Set([&node](uint64_t deployment, uint64_t loaded_epoch) {
      return node.SeatOf(deployment, loaded_epoch);
    });
    kv.Set([&node](uint64_t deployment, uint64_t loaded_epoch) {
      return node.GivesKv(deployment, loaded_epoch);
    });
    const auto report = [&node, &transport] { return ReportOf(node, transport); };
    ExamineOptions examine = ExamineOptionsOf(options, node_options.address);
    examine.promised_memory_bytes = memory.host_bytes != 0 ? memory.host_bytes : memory.bytes;
    examine.processor = ProcessorFactsOf(backend->name(), backend->facts().kind);
    diagnosis.Set({.examine = std::move(examine),
                   .coordinator = options.coordinator,
                   .cache_bytes = [&node] { return node.Report().cache_bytes; },
                   .metrics = [report] { return MetricsText(report()); }});
    const auto metrics = ServeMetrics(options, report);
    status = metrics.status();
    if (status.ok()) {
      const auto keeper = KeepCertificate(options, transport, server.get());
      ControlClient control(server->loop(), transport, options.coordinator, &node);
      status = Serve(&control, server->loop(), &node, options.drain_timeout);
    }
    server->SetServing(false);
    links.Shutdown();
    server->Shutdown(milliseconds(1000));
  }
  return status;
}

}  // namespace strata
