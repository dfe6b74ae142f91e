// strata-coordinator: see --help.
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "common/app/flags.h"
#include "common/app/log.h"
#include "common/app/service_manager.h"
#include "common/app/service_reporter.h"
#include "common/app/signals.h"
#include "common/certificates/authority_folder.h"
#include "common/clock.h"
#include "common/platform/platform.h"
#include "common/rpc/address.h"
#include "common/rpc/io_loop.h"
#include "common/rpc/io_ping.h"
#include "common/rpc/link_service.h"
#include "common/rpc/transport.h"
#include "common/status.h"
#include "coordinator/audit/audit_log.h"
#include "coordinator/examination.h"
#include "coordinator/http/http_api.h"
#include "coordinator/http/http_backend.h"
#include "coordinator/http/http_server.h"
#include "coordinator/http/web_origins.h"
#include "coordinator/http_security.h"
#include "coordinator/joining/joining.h"
#include "coordinator/keys/key_ring.h"
#include "coordinator/own_certificate.h"
#include "coordinator/registry/blob_store.h"
#include "coordinator/serve_flags.h"
#include "coordinator/service/calls/admin_service.h"
#include "coordinator/service/calls/audit_service.h"
#include "coordinator/service/calls/audited_call.h"
#include "coordinator/service/calls/certificate_service.h"
#include "coordinator/service/calls/doctor_service.h"
#include "coordinator/service/calls/inference_service.h"
#include "coordinator/service/calls/joining_desk.h"
#include "coordinator/service/calls/joining_service.h"
#include "coordinator/service/calls/membership_service.h"
#include "coordinator/service/calls/planning_service.h"
#include "coordinator/service/calls/refusals.h"
#include "coordinator/service/constraints/answer_constraints.h"
#include "coordinator/service/offline/offline.h"
#include "coordinator/service/process/coordinator.h"
#include "coordinator/service/request/text_threads.h"
#include "coordinator/store/admin_store.h"
#include "coordinator/store/disk_watch.h"
#include "coordinator/store/state_store.h"
#include "coordinator/store/watched_store.h"

namespace strata {
namespace {

constexpr char kAbout[] =
    "The coordinator of a Strata cluster: knows the workers, places models on them,\n"
    "and serves requests over gRPC and HTTP.";

constexpr char kFooter[] =
    "Offline: strata-coordinator tokenize|detokenize|template PATH [--help]\n"
    "         strata-coordinator new-admin-key [--help]\n"
    "         strata-coordinator examine [FLAGS]: for strata doctor\n"
    "A flag beats its environment variable, which beats the file given with --config.";

// Of the processes that it starts itself.
constexpr char kConstraintCommand[] = "compile-constraint";

int Fail(const absl::Status& status) {
  std::fprintf(stderr, "strata-coordinator: %s\n", Describe(status).c_str());
  return 1;
}

// A connection that cannot be opened hangs at its client; one too many is told so.
void MakeRoomForConnections(uint64_t http_connections) {
  constexpr uint64_t kOthers = 512;  // Workers, gRPC's clients, weights.
  const uint64_t files = RaiseOpenFiles();
  if (files < http_connections + kOthers) {
    LogWarn({{"open_files", files}, {"max_http_connections", http_connections}},
            "the system lets this process open fewer files than --max-http-connections may take: "
            "raise its hard limit (ulimit -Hn, LimitNOFILE), or lower the flag");
  }
}

// Those that all requests go through: the event loop, and gRPC's and HTTP's.
std::vector<ServiceReporter::Watched> WatchedThreads(Coordinator* coordinator, IoLoop* grpc_loop,
                                                     HttpServer* http) {
  using Answer = std::function<void(const std::string& status)>;
  return {{"the event loop",
           [coordinator](const Answer& answer) {
             coordinator->PostToLoop(
                 [coordinator, answer] { answer(coordinator->report()->Summary()); });
           }},
          {"the thread of gRPC",
           [grpc_loop](const Answer& answer) { PingIoLoop(grpc_loop, [answer] { answer(""); }); }},
          {"the thread of HTTP",
           [http](const Answer& answer) { http->Post([answer] { answer(""); }); }}};
}

// What signs the certificates of those who join; none where nobody may.
absl::StatusOr<std::optional<Joining>> AuthorityOf(const ServeFlags& f, AdminStore* store) {
  if (f.authority.empty()) {
    return std::nullopt;
  }
  JoiningOptions options;
  options.max_tokens = f.max_join_tokens;
  options.certificate_days = static_cast<int64_t>(f.certificate_days);
  options.store = store;
  ASSIGN_OR_RETURN(options.authority, ReadAuthoritySet(f.authority));
  ASSIGN_OR_RETURN(Joining joining, Joining::Make(std::move(options)));
  return joining;
}

// The port before that of `server`, on the same interface, unless a flag says otherwise. Workers
// take the ports after it.
absl::StatusOr<std::string> JoinListenOf(const ServeFlags& f, const RpcServer& server) {
  if (!f.join_listen.empty()) {
    return f.join_listen;
  }
  ASSIGN_OR_RETURN(HostPort at, ParseHostPort(server.address()));
  at.port = static_cast<uint16_t>(at.port - 1);
  return at.ToString();
}

// Takes a node's certificates away; of one that is alive only where that ends it.
absl::StatusOr<bool> RevokeNode(const std::string& node, bool alive, JoiningDesk* desk) {
  if (alive && !desk->IsRevocable(node)) {
    return false;
  }
  ASSIGN_OR_RETURN(const size_t ended, desk->Revoke("worker", node));
  LogInfo({{"node", node}, {"ended_calls", uint64_t{ended}}},
          "the certificates of a node were revoked");
  return true;
}

// When the certificates of the listeners that have TLS end.
std::vector<CertificateEnd> CertificateEnds(const Transport& transport, const HttpSecurity& http) {
  std::vector<CertificateEnd> ends;
  if (const auto files = transport.tls(); files != nullptr) {
    ends.push_back({.listener = "grpc", .at_s = files->ends_first.not_after_s});
  }
  if (http.tls() != nullptr) {
    ends.push_back({.listener = "http", .at_s = http.tls()->not_after_s()});
  }
  return ends;
}

// What ends the process takes beside the requests in flight.
constexpr nanoseconds kStopTime = std::chrono::seconds(15);

absl::Status Serve(const ServeFlags& f, const std::string& program) {
  MakeRoomForConnections(f.http.max_connections);
  ASSIGN_OR_RETURN(const auto lock, DirectoryLock::Acquire(f.data_dir));
  Refusals refusals;
  const auto note_refusal = [&refusals](const absl::Status& why) { refusals.Add("", "", why); };
  ASSIGN_OR_RETURN(const Transport transport, Transport::Make(SecurityOf(f, note_refusal)));
  RETURN_IF_ERROR(transport.CheckServes(""));
  RETURN_IF_ERROR(transport.CheckAddress(f.listen, "--listen"));
  ASSIGN_OR_RETURN(const HttpSecurity http_security, HttpSecurity::Make(f, transport));
  const bool off_loopback = !Transport::Make({}).value().CheckAddress(f.listen, "").ok() ||
                            http_security.plain_off_loopback();
  const std::string models_dir = f.data_dir + "/models";
  std::error_code error;
  std::filesystem::create_directories(models_dir, error);
  Models::DeleteLeftovers(models_dir);

  const SystemClock clock;
  ASSIGN_OR_RETURN(const auto database, OpenSqliteStore(f.data_dir + "/state.db"));
  WatchedStore store(database.get(), &clock);
  ASSIGN_OR_RETURN(const auto admin_store, AdminStore::Open(f.data_dir + "/admin.db"));
  ASSIGN_OR_RETURN(const uint64_t term, store.RaiseTerm());
  ASSIGN_OR_RETURN(const std::string cluster_id, store.ClusterId());
  BlobStore blobs;
  Models models(&store, &blobs);
  RETURN_IF_ERROR(models.Restore());
  AuditLog audit(admin_store.get(), {.entries = f.audit_entries});
  RefusedCalls refused_calls(&audit);
  const OnRefusedCall on_refused_call = std::bind_front(&RefusedCalls::Add, &refused_calls);
  const DiskWatch disk({.data_dir = f.data_dir,
                        .least_free_bytes = f.min_free_disk,
                        .probe = [&audit] { audit.Probe(); }},
                       &store);

  Announcer announcer;
  CoordinatorOptions options = CoordinatorOptionsOf(f, off_loopback);
  options.constraints.program = {OwnProgram(program), kConstraintCommand};
  options.outside_problems = [&disk, &audit, &http_security, &announcer] {
    std::vector<v1::Problem> problems = disk.Problems();
    for (auto& others :
         {audit.Problems(), http_security.Problems(std::time(nullptr)), ProblemsOf(announcer)}) {
      problems.insert(problems.end(), others.begin(), others.end());
    }
    return problems;
  };
  Coordinator coordinator(options, &transport, &clock, &store, &models, term, cluster_id);
  MembershipOptions membership_options = MembershipOptionsOf(f);
  membership_options.on_refused = [&refusals](const v1::NodeInfo& node, const absl::Status& why) {
    refusals.Add(node.name(), node.address(), why);
  };
  membership_options.on_refused_call = on_refused_call;
  MembershipService membership(std::move(membership_options), coordinator.membership(), &blobs,
                               coordinator.weight_holders(), &transport);
  LinkServiceOptions link_options;
  link_options.results = true;
  link_options.max_links = static_cast<uint32_t>(f.max_links);
  link_options.on_refused = on_refused_call;
  LinkService links(coordinator.links(), link_options);
  const auto texts = NewTextThreads(f.max_waiting_calls, f.max_waiting_texts);
  InferenceServiceImpl inference(&coordinator, {.max_unread_bytes = f.max_unread,
                                                .send_timeout = f.grpc_send_timeout,
                                                .texts = texts,
                                                .on_refused = on_refused_call});
  RETURN_IF_ERROR(coordinator.Start());
  const auto http_backend =
      MakeHttpBackend(&coordinator, [&] { return CertificateEnds(transport, http_security); });
  const auto http_memory = std::make_shared<HttpMemory>(f.max_http_memory);
  ASSIGN_OR_RETURN(const WebOriginOptions web, WebOptionsOf(f));
  HttpApi http_api(
      http_backend.get(),
      {.texts = texts, .max_answer_bytes = f.max_http_answer, .memory = http_memory, .web = web});
  HttpOptions http_options = f.http;
  http_options.memory = http_memory;
  http_options.tls = http_security.tls();
  http_options.owner_of = [&](const HttpRequest& head) { return http_api.OwnerOf(head); };
  http_options.check_head = [&](const HttpRequest& head) { return http_api.CheckHead(head); };
  ASSIGN_OR_RETURN(
      const auto http,
      // It is moved from. NOLINTNEXTLINE(performance-unnecessary-value-param)
      HttpServer::Start(f.http_listen, http_options, [&](HttpRequest request, auto responder) {
        http_api.Serve(std::move(request), std::move(responder));
      }));
  AdminOptions admin_options;
  admin_options.http_address = http_security.Shown(http->address());
  admin_options.intake.models_dir = models_dir;
  const char* endpoint = std::getenv("HF_ENDPOINT");
  const char* token = std::getenv("HF_TOKEN");
  admin_options.intake.hub_endpoint = endpoint != nullptr ? endpoint : "";
  admin_options.intake.hub_token = token != nullptr ? token : "";
  admin_options.intake.max_upload_bytes = f.max_upload;
  admin_options.intake.upload_timeout = f.upload_timeout;
  admin_options.intake.add_timeout = f.add_timeout;
  admin_options.max_long_calls = f.max_long_calls;
  admin_options.max_waiting_calls = f.max_waiting_calls;
  ASSIGN_OR_RETURN(std::optional<Joining> authority, AuthorityOf(f, admin_store.get()));
  JoiningDesk desk({.joining = std::move(authority),
                    .authority_dir = f.authority,
                    .live = transport.live(),
                    .store = &store});
  RETURN_IF_ERROR(desk.Restore());
  admin_options.audit = &audit;
  if (desk.HasRoles()) {
    admin_options.revoke_node = [&desk](const std::string& node, bool alive) {
      return RevokeNode(node, alive, &desk);
    };
  }
  AdminServiceImpl admin(&coordinator, admin_options);
  TokenServiceImpl tokens(&coordinator, &desk, &audit);
  JoiningServiceImpl joining(
      &coordinator, &desk, &audit,
      {.threads = f.join_threads, .waiting = static_cast<size_t>(f.max_waiting_joins)});
  CertificateServiceImpl certificates(&coordinator, &desk, &audit);
  AuditServiceImpl audit_calls(&coordinator, &audit);
  PlanningServiceImpl planning(&coordinator, &audit);
  DoctorServiceImpl doctor(&coordinator, &transport, &refusals,
                           {.examine = ExamineOptionsOf(f),
                            .metrics = [&] { return http_backend->MetricsText(); },
                            .audit = &audit});
  ASSIGN_OR_RETURN(const auto server,
                   RpcServer::Start(transport, f.listen,
                                    {&inference, &admin, &membership, &links, &tokens, &audit_calls,
                                     &doctor, &certificates, &planning}));
  desk.SetEndCalls([&server] { return server->EndRevokedCalls(); });
  const auto keeper = KeepOwnCertificate(f, transport, &desk);
  std::unique_ptr<RpcServer> join_server;
  if (!f.authority.empty()) {
    ASSIGN_OR_RETURN(const Transport one_way, transport.ForJoining());
    ASSIGN_OR_RETURN(const std::string join_listen, JoinListenOf(f, *server));
    ASSIGN_OR_RETURN(join_server, RpcServer::Start(one_way, join_listen, {&joining}));
    desk.SetAddresses(server->address(), join_server->address());
    if (f.announce) {
      announcer.Start([&desk, at = server->address(), joining_at = join_server->address()] {
        return AnnouncementOf(&desk, at, joining_at);
      });
    }
    std::fprintf(stderr, "joining on %s\n", join_server->address().c_str());
  }
  std::fprintf(stderr, "listening on %s\nhttp listening on %s%s\n", server->address().c_str(),
               http->address().c_str(), http_security.tls() == nullptr ? "" : " (TLS)");
  if (f.security.insecure && off_loopback) {
    LogWarn({}, "--insecure: traffic is neither encrypted nor authenticated");
  }
  if (http_security.plain_off_loopback()) {
    LogWarn({}, "HTTP is in plain text: prompts, answers and API keys can be read on their way");
  }
  const ServiceManager manager = ServiceManagerOfProcess();
  ServiceReporter reporter(manager, WatchedThreads(&coordinator, server->loop(), http.get()));
  if (manager.present()) {
    manager.notify("READY=1\n" + StatusLine("listening on " + server->address()));
  }
  reporter.Start();
  while (!WaitForStopSignal(std::chrono::seconds(3600))) {
  }
  LogInfo({{"drain_timeout_ms", ToMs(f.drain_timeout)}}, "stopping once requests in flight ended");
  if (manager.present()) {
    manager.notify(
        StoppingLines("stopping once requests in flight ended", f.drain_timeout + kStopTime));
  }
  announcer.Stop();
  server->SetServing(false);
  coordinator.Shutdown(f.drain_timeout);
  reporter.Stop();
  admin.Shutdown();
  membership.Shutdown();
  links.Shutdown();
  if (join_server != nullptr) {
    join_server->Shutdown(std::chrono::milliseconds(500));
  }
  http->Shutdown(std::chrono::milliseconds(500));
  server->Shutdown(std::chrono::milliseconds(500));
  return absl::OkStatus();
}

const char* Environment(const char* name) { return std::getenv(name); }

// The secret of a new admin key in the store of a coordinator that does not run.
absl::StatusOr<std::string> NewAdminKey(const std::string& data_dir) {
  ASSIGN_OR_RETURN(const auto lock, DirectoryLock::Acquire(data_dir));
  ASSIGN_OR_RETURN(const auto store, OpenSqliteStore(data_dir + "/state.db"));
  KeyRing keys(store.get(), [](const std::function<void()>& task) { task(); });
  const TimePoint now = SystemClock().Now();
  RETURN_IF_ERROR(keys.Load(now));
  const auto now_s = static_cast<uint64_t>(std::time(nullptr));
  ASSIGN_OR_RETURN(NewKey made,
                   keys.Create({.name = "offline", .admin = true, .limits = {}}, now_s, now));
  ASSIGN_OR_RETURN(const auto admin_store, AdminStore::Open(data_dir + "/admin.db"));
  AuditLog audit(admin_store.get(), {});
  audit.End(audit.Begin({.who = "strata-coordinator new-admin-key",
                         .call = "CreateKey",
                         .object = "offline (" + made.key.id + ")"},
                        now_s * 1000),
            absl::OkStatus());
  return std::move(made.secret);
}

int NewAdminKeyMain(int argc, char** argv) {
  std::string data_dir = DefaultDataDir("coordinator", Environment);
  Flags flags("strata-coordinator new-admin-key", "STRATA_COORDINATOR_",
              "Makes an API key for operators while the coordinator is stopped, and prints its\n"
              "secret: for when that of the last such key is lost, or before the first start.",
              "docs/OPERATIONS.md says what such keys are for.");
  flags.Text("data-dir", &data_dir, "State of the coordinator");
  if (const auto exit = flags.Parse(argc, argv, Environment)) {
    return *exit;
  }
  const absl::StatusOr<std::string> secret = NewAdminKey(data_dir);
  if (!secret.ok()) {
    return Fail(secret.status());
  }
  std::printf("%s\n", secret->c_str());
  return 0;
}

int Main(int argc, char** argv) {
  if (argc > 1) {
    const std::string_view command = argv[1];
    if (command == "tokenize" || command == "detokenize" || command == "template") {
      return OfflineMain(argc - 1, argv + 1);
    }
    if (command == kConstraintCommand) {
      return ConstraintProgramMain(argc - 1, argv + 1);
    }
    if (command == "new-admin-key") {
      return NewAdminKeyMain(argc - 1, argv + 1);
    }
    if (command == "examine") {
      return ExamineMain(argc - 1, argv + 1, Environment);
    }
  }
  BlockStopSignals();
  SetUpGrpc();
  ServeFlags f;
  f.data_dir = DefaultDataDir("coordinator", Environment);
  Flags flags("strata-coordinator", "STRATA_COORDINATOR_", kAbout, kFooter);
  Register(&flags, &f);
  if (const auto exit = flags.Parse(argc, argv, Environment)) {
    return *exit;
  }
  if (const absl::Status checked = Check(f); !checked.ok()) {
    std::fprintf(stderr, "strata-coordinator: %s; see strata-coordinator --help\n",
                 std::string(checked.message()).c_str());
    return 2;
  }
  f.given = flags.Report();
  if (absl::Status status = SetUpLogging(f.log_level, f.log_format); !status.ok()) {
    return Fail(status);
  }
  const absl::Status status = Serve(f, argv[0]);
  return status.ok() ? 0 : Fail(status);
}

}  // namespace
}  // namespace strata

int main(int argc, char** argv) { return strata::Main(argc, argv); }
