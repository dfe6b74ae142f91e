#include "coordinator/serve_flags.h"

#include "common/certificates/renewal.h"
#include "common/status.h"
#include "common/units.h"

namespace strata {
namespace {

// What any 32-bit limit may be.
constexpr uint64_t kMostOfAnything = 1u << 30;
constexpr uint64_t kMostJoinThreads = 256;
constexpr uint64_t kMostCertificateDays = 3650;
constexpr nanoseconds kShortest = std::chrono::milliseconds(10);

}  // namespace

void Register(Flags* flags, ServeFlags* f) {
  flags->Text("listen", &f->listen,
              "Where workers and clients connect, HOST:PORT; port 0 picks one");
  flags->Text("http-listen", &f->http_listen,
              "Where HTTP clients and Prometheus (/metrics) connect, HOST:PORT");
  flags->Switch("http-tls", &f->http_tls,
                "Speak TLS at --http-listen (HTTPS), with the certificate of --http-tls-dir, or of "
                "--tls-dir; clients show none");
  flags->Text("http-tls-dir", &f->http_tls_dir,
              "The same, with another certificate: a folder with cert.pem and key.pem. Files that "
              "change are taken within seconds");
  flags->Text("data-dir", &f->data_dir, "State, uploaded and pulled models");
  flags->Text("tls-dir", &f->security.tls_dir, "Folder with ca.pem, cert.pem, key.pem: mutual TLS");
  flags->Text("authority", &f->authority,
              "Folder of the authority (strata cluster init), by which machines and people join "
              "with tokens (strata node token); empty: nobody does. Wants --tls-dir");
  flags->Text(
      "join-listen", &f->join_listen,
      "Where they get their certificates, HOST:PORT; empty: the port before that of --listen");
  flags->Number("max-join-tokens", &f->max_join_tokens, "Tokens that nobody has used yet", 1,
                kMostOfAnything);
  flags->Number("join-threads", &f->join_threads, "Joinings that are answered at once", 1,
                kMostJoinThreads);
  flags->Number("max-waiting-joins", &f->max_waiting_joins,
                "Joinings that wait for one of these; more are refused", 0, kMostOfAnything);
  flags->Number("audit-entries", &f->audit_entries,
                "Calls of operators that are kept (strata audit), the newest; of refused ones a "
                "tenth of it besides",
                1, kMostOfAnything);
  flags->Number("certificate-days", &f->certificate_days,
                "How long the certificates of those who join are valid", 1, kMostCertificateDays);
  flags->Switch("announce", &f->announce,
                "Announce on the local network where machines join, by avahi-daemon and "
                "avahi-publish, so that strata-worker join --discover finds it; wants --authority");
  flags->Duration("renew-before", &f->renew_before,
                  "How long before it ends the coordinator renews its own certificate, with "
                  "--authority",
                  {}, kRenewedByDefault);
  flags->Duration("max-connection-age", &f->security.max_connection_age,
                  "With TLS, after how long a connection gives way to a new one, by the "
                  "certificates of then; what is open goes on",
                  std::chrono::seconds(1));
  flags->Switch("insecure", &f->security.insecure,
                "Allow plain text off loopback; anyone who can connect can use the cluster");
  flags->Duration("step-timeout", &f->step_timeout,
                  "Longest wait for a step's result before the pipeline is fenced", kShortest);
  flags->Duration(
      "stall-timeout", &f->stall_timeout,
      "Least wait for a result before a pipeline whose steps take less than a quarter of "
      "it is fenced; a node that does not take part in that is left where models may move "
      "(model load --recovery move). Longer where steps take longer, up to --step-timeout. "
      "0s: only --step-timeout counts");
  flags->Duration("recovery-timeout", &f->recovery_timeout,
                  "How long after --step-timeout the requests of a pipeline that gives no sign of "
                  "life fail, unless it is mended before",
                  kShortest);
  flags->Duration(
      "placement-timeout", &f->placement_timeout,
      "How long after --step-timeout the requests of a model that has lost a node fail, "
      "while its layers fit on no other nodes (model load --recovery move)",
      kShortest);
  flags->Duration("placement-grace", &f->placement_grace,
                  "How long a model that is to be loaded waits for nodes that are not there before "
                  "others take their layers (model load --recovery move)");
  flags->Duration(
      "better-after", &f->better_after,
      "How long after a node has joined a model moves to a placement that is at least "
      "20 % faster (model load --recovery move); twice as long after each such move, up "
      "to 64 times, until it has stayed for 16 times as long; 0: never");
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
  flags->Size("speculate-memory", &f->speculate_memory,
              "Most memory of each model's recent answers, in which drafts of later ones of the "
              "same API key are looked up (model load --speculate); 0: none are kept");
  flags->Duration("inter-token-target", &f->inter_token_target,
                  "Prompts are computed beside answers in parts so small that each answer gets a "
                  "token this often; where it takes longer without prompts, at most 1.4 times as "
                  "long. 0: in parts as large as --step-timeout allows");
  flags->Number("max-batch-tokens", &f->max_batch_tokens,
                "Most rows of one step; how many a step has follows from what steps take", 1,
                kMostOfAnything);
  flags->Number("max-batch-items", &f->max_batch_items, "Most sequences of one step", 1,
                kMostOfAnything);
  flags->Size("max-constraint-bytes", &f->max_constraint_bytes,
              "Most bytes of the schema, pattern, choices or grammar of a request's constraint");
  flags->Duration("constraint-timeout", &f->constraint_timeout,
                  "A constraint that is not compiled within this time is refused", kShortest);
  flags->Size("constraint-memory", &f->constraint_memory,
              "Most memory of a process that compiles a constraint");
  flags->Number("constraint-compilers", &f->constraint_compilers,
                "Most processes that compile constraints at the same time", 1, kMostOfAnything);
  flags->Number("max-waiting-constraints", &f->max_waiting_constraints,
                "Most constraints that wait for such a process", 0, kMostOfAnything);
  flags->Duration("constraint-mask-time", &f->constraint_mask_time,
                  "Most processor time to find the tokens that may come next in a held answer; all "
                  "of an answer may take twice that, and 5 ms for each token",
                  kShortest);
  flags->Size("constraint-cache", &f->constraint_cache,
              "Most memory of compiled constraints that are kept for later requests");
  flags->Number("default-context", &f->default_context,
                "Most context that `model load` gives without --context, in tokens", 1,
                kMostOfAnything);
  flags->Number("max-links", &f->max_links, "Most result links at the same time", 1,
                kMostOfAnything);
  flags->Number("max-joining", &f->max_joining,
                "Most control streams of workers that have not joined yet", 1, kMostOfAnything);
  flags->Duration("register-timeout", &f->register_timeout,
                  "A control stream that has not registered for this long is refused", kShortest);
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

absl::Status Check(const ServeFlags& f) {
  if (f.lease < 2 * f.heartbeat) {
    return absl::InvalidArgumentError(
        "--lease " + FormatDuration(f.lease) + " is less than twice --heartbeat " +
        FormatDuration(f.heartbeat) + ": workers would be lost at every delay");
  }
  if (!f.authority.empty() && f.security.tls_dir.empty()) {
    return absl::InvalidArgumentError(
        "--authority wants --tls-dir: who joins with a token must know whom it joins");
  }
  if (f.http_tls && f.http_tls_dir.empty() && f.security.tls_dir.empty()) {
    return absl::InvalidArgumentError(
        "--http-tls wants --tls-dir, whose certificate it shows, or --http-tls-dir with another");
  }
  if (f.authority.empty() && !f.join_listen.empty()) {
    return absl::InvalidArgumentError("--join-listen wants --authority, which signs certificates");
  }
  if (f.announce && f.authority.empty()) {
    return absl::InvalidArgumentError("--announce wants --authority: without it nobody can join");
  }
  return absl::OkStatus();
}

CoordinatorOptions CoordinatorOptionsOf(const ServeFlags& f, bool off_loopback) {
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
  options.deployment.stall_timeout = f.stall_timeout;
  options.deployment.recovery_timeout = f.recovery_timeout;
  options.deployment.placement_timeout = f.placement_timeout;
  options.deployment.placement_grace = f.placement_grace;
  options.deployment.better_after = f.better_after;
  options.deployment.max_queued_requests = static_cast<uint32_t>(f.max_queued_requests);
  options.deployment.max_input_embedding_bytes = f.max_input_embeddings;
  options.deployment.max_sessions = static_cast<uint32_t>(f.max_sessions);
  options.deployment.kv_watermark = static_cast<double>(f.kv_watermark) / 100;
  options.deployment.prefix_cache = f.prefix_cache == "on";
  options.deployment.speculate_memory = f.speculate_memory;
  options.deployment.inter_token_target = f.inter_token_target;
  options.deployment.max_batch_items = static_cast<uint32_t>(f.max_batch_items);
  options.load.max_batch_tokens = static_cast<uint32_t>(f.max_batch_tokens);
  options.load.max_model_context = f.default_context;
  options.constraints.max_source_bytes = f.max_constraint_bytes;
  options.constraints.compile_timeout = f.constraint_timeout;
  options.constraints.compile_memory = f.constraint_memory;
  options.constraints.compilers = f.constraint_compilers;
  options.constraints.waiting = f.max_waiting_constraints;
  options.constraints.mask_time = f.constraint_mask_time;
  options.constraints.kept_bytes = f.constraint_cache;
  options.measure_again = f.measure_again;
  options.max_waiting_calls = f.max_waiting_calls;
  options.log_requests = f.log_requests == "on";
  options.insecure_off_loopback = off_loopback && f.security.insecure;
  return options;
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

absl::StatusOr<WebOriginOptions> WebOptionsOf(const ServeFlags& f) {
  WebOriginOptions web;
  web.loopback = Transport::Make({}).value().CheckAddress(f.http_listen, "").ok();
  ASSIGN_OR_RETURN(web.origins, ParseWebOrigins(f.http_allow_origins));
  ASSIGN_OR_RETURN(web.hosts, ParseWebHosts(f.http_allow_hosts));
  return web;
}

}  // namespace strata
