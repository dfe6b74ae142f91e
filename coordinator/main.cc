// strata-coordinator: see --help.
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "common/app/flags.h"
#include "common/app/log.h"
#include "common/app/service_manager.h"
#include "common/app/service_reporter.h"
#include "common/app/signals.h"
#include "common/clock.h"
#include "common/platform/platform.h"
#include "common/rpc/io_loop.h"
#include "common/rpc/io_ping.h"
#include "common/rpc/link_service.h"
#include "common/rpc/transport.h"
#include "common/status.h"
#include "common/units.h"
#include "coordinator/http/http_api.h"
#include "coordinator/http/http_backend.h"
#include "coordinator/http/http_server.h"
#include "coordinator/http/web_origins.h"
#include "coordinator/keys/key_ring.h"
#include "coordinator/registry/blob_store.h"
#include "coordinator/service/calls/admin_service.h"
#include "coordinator/service/calls/inference_service.h"
#include "coordinator/service/calls/membership_service.h"
#include "coordinator/service/offline/offline.h"
#include "coordinator/service/process/coordinator.h"
#include "coordinator/service/request/text_threads.h"
#include "coordinator/store/disk_watch.h"
#include "coordinator/store/state_store.h"
#include "coordinator/store/watched_store.h"

namespace strata {
namespace {

constexpr char kAbout[] =
    "The coordinator of a Strata cluster: knows the workers, places models on them,\n"
    "and serves requests over gRPC and HTTP.";
// What any 32-bit limit may be.
constexpr uint64_t kMostOfAnything = 1u << 30;
constexpr nanoseconds kShortest = std::chrono::milliseconds(10);

constexpr char kFooter[] =
    "Offline: strata-coordinator tokenize|detokenize|template PATH [--help]\n"
    "         strata-coordinator new-admin-key [--help]\n"
    "A flag beats its environment variable, which beats the file given with --config.";

struct ServeFlags {
  std::string listen = "127.0.0.1:7070";
  std::string http_listen = "127.0.0.1:8080";
  std::string data_dir;
  TransportSecurity security;
  nanoseconds step_timeout = std::chrono::seconds(10);
  nanoseconds recovery_timeout = milliseconds(800);
  nanoseconds drain_timeout = std::chrono::seconds(30);
  nanoseconds lease = std::chrono::seconds(5);
  nanoseconds heartbeat = std::chrono::seconds(1);
  uint64_t max_queued_requests = 256;
  uint64_t max_input_embeddings = DeploymentOptions().max_input_embedding_bytes;
  uint64_t max_sessions = 1024;
  uint64_t kv_watermark = 5;
  nanoseconds inter_token_target = milliseconds(20);
  std::string prefix_cache = "on";
  uint64_t max_batch_tokens = 512;
  uint64_t max_batch_items = 256;
  uint64_t default_context = 8192;
  uint64_t max_links = 256;
  uint64_t max_joining = 256;
  uint64_t max_waiting_calls = 4096;
  uint64_t max_long_calls = 64;
  uint64_t max_transfers = 128;
  uint64_t max_unread = uint64_t{256} << 20;
  nanoseconds grpc_send_timeout = InferenceOptions().send_timeout;
  uint64_t max_waiting_texts = FairCallsOptions().most_bytes;
  nanoseconds register_timeout = std::chrono::seconds(10);
  nanoseconds dial_back_timeout = std::chrono::seconds(3);
  nanoseconds measure_again = std::chrono::seconds(5);
  nanoseconds measure_timeout = ClusterOptions().measure_timeout;
  nanoseconds load_timeout = DeploymentOptions().load_timeout;
  nanoseconds retry_load = LoadRetryOptions().first;
  nanoseconds retry_load_at_most = LoadRetryOptions().most;
  nanoseconds check_timeout = CoordinatorOptions().check_timeout;
  nanoseconds upload_timeout = ModelIntakeOptions().upload_timeout;
  nanoseconds add_timeout = ModelIntakeOptions().add_timeout;
  nanoseconds forget_nodes_after = ClusterOptions().forget_after;
  uint64_t min_free_disk = ClusterOptions().least_free_disk_bytes;
  HttpOptions http;
  std::string http_allow_origins;
  std::string http_allow_hosts;
  uint64_t max_http_memory = uint64_t{1} << 30;
  uint64_t max_http_answer = HttpApiOptions().max_answer_bytes;
  uint64_t max_upload = uint64_t{4} << 40;
  std::string log_level = "info";
  std::string log_format = "auto";
  std::string log_requests = "on";
};

void Register(Flags* flags, ServeFlags* f) {
  flags->Text("listen", &f->listen,
              "Where workers and clients connect, HOST:PORT; port 0 picks one");
  flags->Text("http-listen", &f->http_listen,
              "Where HTTP clients and Prometheus (/metrics) connect, HOST:PORT");
  flags->Text("data-dir", &f->data_dir, "State, uploaded and pulled models");
  flags->Text("tls-dir", &f->security.tls_dir, "Folder with ca.pem, cert.pem, key.pem: mutual TLS");
  flags->Switch("insecure", &f->security.insecure,
                "Allow plain text off loopback; anyone who can connect can use the cluster");
  flags->Duration("step-timeout", &f->step_timeout,
                  "Longest wait for a step's result before the pipeline is fenced", kShortest);
  flags->Duration("recovery-timeout", &f->recovery_timeout,
                  "How long after --step-timeout the requests of a pipeline that gives no sign of "
                  "life fail, unless it is mended before",
                  kShortest);
  flags->Duration("drain-timeout", &f->drain_timeout,
                  "Longest wait for requests in flight at SIGTERM");
  flags->Duration("lease", &f->lease, "A worker without heartbeats for this long is lost",
                  kShortest);
  flags->Duration("heartbeat", &f->heartbeat, "How often workers send heartbeats", kShortest);
  flags->Number("max-queued-requests", &f->max_queued_requests,
                "Requests that may wait for KV memory, for each model", 1, kMostOfAnything);
  flags->Size("max-input-embeddings", &f->max_input_embeddings,
              "Most bytes of input embeddings that the requests of a model hold, until each ends");
  flags->Number("max-sessions", &f->max_sessions, "Requests that run at once, for each model", 1,
                kMostOfAnything);
  flags->Number("kv-watermark", &f->kv_watermark,
                "Most of the KV pool, in percent, that starting a request leaves free; a page for "
                "each one that runs, up to this, so that it can grow without preempting others",
                0, 100);
  flags->Choice(
      "prefix-cache", &f->prefix_cache, {"on", "off"},
      "Keep the KV of ended requests, as long as nobody needs the pages, for requests that "
      "begin with the same tokens");
  flags->Duration("inter-token-target", &f->inter_token_target,
                  "Prompts are computed beside answers in parts so small that each answer gets a "
                  "token this often; where it takes longer without prompts, at most 1.4 times as "
                  "long. 0: in parts as large as --step-timeout allows");
  flags->Number("max-batch-tokens", &f->max_batch_tokens,
                "Most rows of one step; how many a step has follows from what steps take", 1,
                kMostOfAnything);
  flags->Number("max-batch-items", &f->max_batch_items, "Most sequences of one step", 1,
                kMostOfAnything);
  flags->Number("default-context", &f->default_context,
                "Most context that `model load` gives without --context, in tokens", 1,
                kMostOfAnything);
  flags->Number("max-links", &f->max_links, "Most result links at the same time", 1,
                kMostOfAnything);
  flags->Number("max-joining", &f->max_joining,
                "Most control streams of workers that have not joined yet", 1, kMostOfAnything);
  flags->Duration("register-timeout", &f->register_timeout,
                  "A control stream that has not registered for this long is cancelled", kShortest);
  flags->Duration("dial-back-timeout", &f->dial_back_timeout,
                  "Longest wait for the address that a joining worker advertises", kShortest);
  flags->Duration("measure-again", &f->measure_again,
                  "How often a link between workers that failed its measurement is measured again",
                  kShortest);
  flags->Duration("measure-timeout", &f->measure_timeout,
                  "A worker that says nothing of links that it was asked to measure for this long "
                  "is a problem of `strata status`, and is asked again",
                  kShortest);
  flags->Duration("load-timeout", &f->load_timeout,
                  "A load, or a resize, whose worker gets no further for this long has failed",
                  kShortest);
  flags->Duration("retry-load", &f->retry_load,
                  "A load that failed for a cause that may go, such as a full disk, is tried again "
                  "after this long, then after twice as long, and so on; 0s: never");
  flags->Duration("retry-load-at-most", &f->retry_load_at_most,
                  "Longest time between two such tries", kShortest);
  flags->Duration(
      "check-timeout", &f->check_timeout,
      "A worker that does not answer about a layer of `model check` for this long fails "
      "the check",
      kShortest);
  flags->Duration("upload-timeout", &f->upload_timeout,
                  "A `model add --upload` that sends nothing for this long is ended", kShortest);
  flags->Duration("add-timeout", &f->add_timeout,
                  "A `model add` whose files give nothing for this long, as on a disk that hangs, "
                  "is ended",
                  kShortest);
  flags->Duration(
      "forget-nodes-after", &f->forget_nodes_after,
      "A worker that left is forgotten after this long, unless a model has layers on it "
      "or it is drained; 0s: never");
  flags->Size("min-free-disk", &f->min_free_disk,
              "Less than this free on the disk of --data-dir, or of a worker's, is a problem of "
              "`strata status`; 0: never");
  flags->Number("max-waiting-calls", &f->max_waiting_calls,
                "Most calls of clients that wait for the coordinator; more are refused", 1,
                kMostOfAnything);
  flags->Number("max-long-calls", &f->max_long_calls,
                "Most calls at once that add, remove, load or resize models; more are refused", 1,
                kMostOfAnything);
  flags->Number("max-transfers", &f->max_transfers,
                "Most transfers of weights to workers at once; more wait", 1, kMostOfAnything);
  flags->Size(
      "max-unread", &f->max_unread,
      "Most bytes of one gRPC answer that wait for a client that does not read; from 1 MiB of "
      "it on, or a quarter, its answer is not computed further and gives way to others");
  flags->Duration("grpc-send-timeout", &f->grpc_send_timeout,
                  "A gRPC client that takes nothing of its answer for this long is cut off",
                  kShortest);
  flags->Size("max-waiting-texts", &f->max_waiting_texts,
              "Most bytes of requests that wait for a thread to tokenize their texts, of gRPC and "
              "HTTP together; more are refused. One API key has no more than it leaves to others");
  flags->Number("max-http-connections", &f->http.max_connections,
                "Most HTTP connections; one more is answered 503", 1, kMostOfAnything);
  flags->Size("max-http-header", &f->http.max_header_bytes,
              "Most bytes of an HTTP request's header");
  flags->Size("max-http-body", &f->http.max_body_bytes, "Most bytes of an HTTP request's body");
  flags->Size(
      "max-http-unread", &f->http.max_unread_bytes,
      "Most bytes of an HTTP stream that wait for a client that reads slowly; from a quarter "
      "of it on its answer is not computed further");
  flags->Size("max-http-answer", &f->max_http_answer,
              "Most bytes of an HTTP answer that is no stream, about, while it is being made");
  flags->Size("max-http-memory", &f->max_http_memory,
              "Most bytes, about, that the bodies of HTTP requests and answers that are no streams "
              "hold together; more are answered 429. One API key's hold no more than they leave to "
              "others");
  flags->Duration("http-timeout", &f->http.timeout,
                  "An HTTP connection is closed that is idle, or sends a header, for this long",
                  kShortest);
  flags->Duration("http-body-timeout", &f->http.body_timeout,
                  "Longest wait for the whole body of an HTTP request", kShortest);
  flags->Duration("http-send-timeout", &f->http.send_timeout,
                  "An HTTP client that takes nothing of its answer for this long is cut off",
                  kShortest);
  flags->Size(
      "http-send-rate", &f->http.send_rate,
      "Least bytes a second that an HTTP client takes of what waits for it, after the first "
      "--http-send-timeout; who is slower is cut off. 0: however slow");
  flags->Duration("http-keepalive", &f->http.keepalive,
                  "Sends a comment to a stream's client who has heard nothing for this long; 0s: "
                  "never");
  flags->Text("http-allow-origins", &f->http_allow_origins,
              "Origins whose web pages may use the HTTP API, separated by commas, as in "
              "https://app.example; *: all. Loopback's may at any rate while it listens there");
  flags->Text("http-allow-hosts", &f->http_allow_hosts,
              "Host names by which the HTTP API is reached, separated by commas; *: all. On "
              "loopback without API keys no other name than localhost is answered");
  flags->Size("max-upload", &f->max_upload, "Most bytes of one `model add --upload`");
  flags->Choice("log-level", &f->log_level, {"trace", "debug", "info", "warn", "error", "off"},
                "Least severe lines that are logged");
  flags->Choice("log-format", &f->log_format, {"auto", "text", "json"},
                "Format of log lines; auto: text, and fields of its journal under systemd");
  flags->Choice("log-requests", &f->log_requests, {"on", "off"},
                "Log the end of each request at level info; off: at level debug");
}

int Fail(const absl::Status& status) {
  std::fprintf(stderr, "strata-coordinator: %s\n", Describe(status).c_str());
  return 1;
}

CoordinatorOptions OptionsOf(const ServeFlags& f, bool off_loopback) {
  CoordinatorOptions options;
  options.cluster.lease = f.lease;
  options.cluster.heartbeat = f.heartbeat;
  options.cluster.measure_timeout = f.measure_timeout;
  options.cluster.forget_after = f.forget_nodes_after;
  options.cluster.least_free_disk_bytes = f.min_free_disk;
  options.deployment.load_timeout = f.load_timeout;
  options.deployment.retry = {f.retry_load, f.retry_load_at_most};
  options.check_timeout = f.check_timeout;
  options.deployment.step_timeout = f.step_timeout;
  options.deployment.recovery_timeout = f.recovery_timeout;
  options.deployment.max_queued_requests = static_cast<uint32_t>(f.max_queued_requests);
  options.deployment.max_input_embedding_bytes = f.max_input_embeddings;
  options.deployment.max_sessions = static_cast<uint32_t>(f.max_sessions);
  options.deployment.kv_watermark = static_cast<double>(f.kv_watermark) / 100;
  options.deployment.prefix_cache = f.prefix_cache == "on";
  options.deployment.inter_token_target = f.inter_token_target;
  options.deployment.max_batch_items = static_cast<uint32_t>(f.max_batch_items);
  options.load.max_batch_tokens = static_cast<uint32_t>(f.max_batch_tokens);
  options.load.max_model_context = f.default_context;
  options.measure_again = f.measure_again;
  options.max_waiting_calls = f.max_waiting_calls;
  options.log_requests = f.log_requests == "on";
  options.insecure_off_loopback = off_loopback && f.security.insecure;
  return options;
}

absl::StatusOr<WebOriginOptions> WebOptionsOf(const ServeFlags& f) {
  WebOriginOptions web;
  web.loopback = Transport::Make({}).value().CheckAddress(f.http_listen, "").ok();
  ASSIGN_OR_RETURN(web.origins, ParseWebOrigins(f.http_allow_origins));
  ASSIGN_OR_RETURN(web.hosts, ParseWebHosts(f.http_allow_hosts));
  return web;
}

MembershipOptions MembershipOptionsOf(const ServeFlags& f) {
  MembershipOptions options;
  options.register_timeout = std::chrono::duration_cast<milliseconds>(f.register_timeout);
  options.max_joining = static_cast<uint32_t>(f.max_joining);
  options.dial_back_timeout = std::chrono::duration_cast<milliseconds>(f.dial_back_timeout);
  options.max_transfers = f.max_transfers;
  options.max_waiting_transfers = f.max_waiting_calls;
  return options;
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

// What ends the process takes beside the requests in flight.
constexpr nanoseconds kStopTime = std::chrono::seconds(15);

absl::Status Serve(const ServeFlags& f) {
  MakeRoomForConnections(f.http.max_connections);
  ASSIGN_OR_RETURN(const auto lock, DirectoryLock::Acquire(f.data_dir));
  TransportSecurity security = f.security;
  security.on_refused_client = [](const absl::Status& why) {
    LogWarn({}, "a connection was refused: " + Describe(why));
  };
  ASSIGN_OR_RETURN(const Transport transport, Transport::Make(security));
  RETURN_IF_ERROR(transport.CheckServes(""));
  RETURN_IF_ERROR(transport.CheckAddress(f.listen, "--listen"));
  // HTTP has no TLS yet: off loopback it needs --insecure, whatever gRPC has.
  TransportSecurity http_security;
  http_security.insecure = f.security.insecure;
  ASSIGN_OR_RETURN(const Transport http_transport, Transport::Make(http_security));
  RETURN_IF_ERROR(http_transport.CheckAddress(f.http_listen, "--http-listen"));
  const Transport plain = Transport::Make({}).value();
  const bool off_loopback =
      !plain.CheckAddress(f.listen, "").ok() || !plain.CheckAddress(f.http_listen, "").ok();
  const std::string models_dir = f.data_dir + "/models";
  std::error_code error;
  std::filesystem::create_directories(models_dir, error);
  Models::DeleteLeftovers(models_dir);

  const SystemClock clock;
  ASSIGN_OR_RETURN(const auto database, OpenSqliteStore(f.data_dir + "/state.db"));
  WatchedStore store(database.get(), &clock);
  ASSIGN_OR_RETURN(const uint64_t term, store.RaiseTerm());
  ASSIGN_OR_RETURN(const std::string cluster_id, store.ClusterId());
  BlobStore blobs;
  Models models(&store, &blobs);
  RETURN_IF_ERROR(models.Restore());
  const DiskWatch disk({.data_dir = f.data_dir, .least_free_bytes = f.min_free_disk}, &store);

  CoordinatorOptions options = OptionsOf(f, off_loopback);
  options.outside_problems = [&disk] { return disk.Problems(); };
  Coordinator coordinator(options, &transport, &clock, &store, &models, term, cluster_id);
  MembershipService membership(MembershipOptionsOf(f), coordinator.membership(), &blobs,
                               &transport);
  LinkServiceOptions link_options;
  link_options.results = true;
  link_options.max_links = static_cast<uint32_t>(f.max_links);
  LinkService links(coordinator.links(), link_options);
  const auto texts = NewTextThreads(f.max_waiting_calls, f.max_waiting_texts);
  InferenceServiceImpl inference(
      &coordinator,
      {.max_unread_bytes = f.max_unread, .send_timeout = f.grpc_send_timeout, .texts = texts});
  RETURN_IF_ERROR(coordinator.Start());
  const auto http_backend = MakeHttpBackend(&coordinator);
  const auto http_memory = std::make_shared<HttpMemory>(f.max_http_memory);
  ASSIGN_OR_RETURN(const WebOriginOptions web, WebOptionsOf(f));
  HttpApi http_api(
      http_backend.get(),
      {.texts = texts, .max_answer_bytes = f.max_http_answer, .memory = http_memory, .web = web});
  HttpOptions http_options = f.http;
  http_options.memory = http_memory;
  http_options.owner_of = [&](const HttpRequest& head) { return http_api.OwnerOf(head); };
  http_options.check_head = [&](const HttpRequest& head) { return http_api.CheckHead(head); };
  ASSIGN_OR_RETURN(
      const auto http,
      // It is moved from. NOLINTNEXTLINE(performance-unnecessary-value-param)
      HttpServer::Start(f.http_listen, http_options, [&](HttpRequest request, auto responder) {
        http_api.Serve(std::move(request), std::move(responder));
      }));
  AdminOptions admin_options;
  admin_options.http_address = http->address();
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
  AdminServiceImpl admin(&coordinator, admin_options);
  ASSIGN_OR_RETURN(const auto server, RpcServer::Start(transport, f.listen,
                                                       {&inference, &admin, &membership, &links}));
  std::fprintf(stderr, "listening on %s\nhttp listening on %s\n", server->address().c_str(),
               http->address().c_str());
  if (f.security.insecure && off_loopback) {
    LogWarn({}, "--insecure: traffic is neither encrypted nor authenticated");
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
  server->SetServing(false);
  coordinator.Shutdown(f.drain_timeout);
  reporter.Stop();
  admin.Shutdown();
  membership.Shutdown();
  links.Shutdown();
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
  ASSIGN_OR_RETURN(NewKey made, keys.Create({.name = "offline", .admin = true, .limits = {}},
                                            static_cast<uint64_t>(std::time(nullptr)), now));
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
    if (command == "new-admin-key") {
      return NewAdminKeyMain(argc - 1, argv + 1);
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
  if (f.lease < 2 * f.heartbeat) {
    std::fprintf(stderr,
                 "strata-coordinator: --lease %s is less than twice --heartbeat %s: workers would "
                 "be lost at every delay; see strata-coordinator --help\n",
                 FormatDuration(f.lease).c_str(), FormatDuration(f.heartbeat).c_str());
    return 2;
  }
  if (absl::Status status = SetUpLogging(f.log_level, f.log_format); !status.ok()) {
    return Fail(status);
  }
  const absl::Status status = Serve(f);
  return status.ok() ? 0 : Fail(status);
}

}  // namespace
}  // namespace strata

int main(int argc, char** argv) { return strata::Main(argc, argv); }
