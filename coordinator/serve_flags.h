// The flags of a coordinator that serves: their names, defaults and bounds, which of them do not go
// together, and what each is to whom it is handed.
#ifndef STRATA_COORDINATOR_SERVE_FLAGS_H_
#define STRATA_COORDINATOR_SERVE_FLAGS_H_

#include <chrono>
#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/app/flags.h"
#include "common/clock.h"
#include "common/rpc/fair_calls.h"
#include "common/rpc/link_service.h"
#include "common/rpc/transport.h"
#include "coordinator/audit/audit_log.h"
#include "coordinator/http/http_api.h"
#include "coordinator/http/http_server.h"
#include "coordinator/http/web_origins.h"
#include "coordinator/joining/joining.h"
#include "coordinator/service/calls/admin_service.h"
#include "coordinator/service/calls/inference_service.h"
#include "coordinator/service/calls/joining_service.h"
#include "coordinator/service/calls/membership_service.h"
#include "coordinator/service/process/coordinator.h"

namespace strata {

// A field's value here is its flag's default.
struct ServeFlags {
  FlagReport given;  // What was given, and where; once they are parsed.
  std::string listen = "127.0.0.1:7070";
  std::string http_listen = "127.0.0.1:8080";
  std::string data_dir;
  TransportSecurity security;
  std::string authority;
  bool announce = false;
  std::string join_listen;
  uint64_t max_join_tokens = JoiningOptions().max_tokens;
  uint64_t audit_entries = AuditOptions().entries;
  uint64_t join_threads = JoiningCallsOptions().threads;
  uint64_t max_waiting_joins = JoiningCallsOptions().waiting;
  nanoseconds renew_before{0};
  uint64_t certificate_days = static_cast<uint64_t>(JoiningOptions().certificate_days);
  nanoseconds step_timeout = DeploymentOptions().step_timeout;
  nanoseconds stall_timeout = DeploymentOptions().stall_timeout;
  nanoseconds recovery_timeout = DeploymentOptions().recovery_timeout;
  nanoseconds placement_timeout = DeploymentOptions().placement_timeout;
  nanoseconds placement_grace = DeploymentOptions().placement_grace;
  nanoseconds better_after = DeploymentOptions().better_after;
  nanoseconds drain_timeout = std::chrono::seconds(30);
  nanoseconds lease = ClusterOptions().lease;
  nanoseconds heartbeat = ClusterOptions().heartbeat;
  uint64_t max_queued_requests = DeploymentOptions().max_queued_requests;
  uint64_t max_input_embeddings = DeploymentOptions().max_input_embedding_bytes;
  uint64_t max_sessions = DeploymentOptions().max_sessions;
  uint64_t kv_watermark = 5;
  nanoseconds inter_token_target = DeploymentOptions().inter_token_target;
  std::string prefix_cache = "on";
  uint64_t speculate_memory = DeploymentOptions().speculate_memory;
  uint64_t max_batch_tokens = LoadDefaults().max_batch_tokens;
  uint64_t max_batch_items = DeploymentOptions().max_batch_items;
  uint64_t default_context = LoadDefaults().max_model_context;
  uint64_t max_links = LinkServiceOptions().max_links;
  uint64_t max_joining = MembershipOptions().max_joining;
  uint64_t max_waiting_calls = CoordinatorOptions().max_waiting_calls;
  uint64_t max_long_calls = AdminOptions().max_long_calls;
  uint64_t max_transfers = MembershipOptions().max_transfers;
  uint64_t max_unread = InferenceOptions().max_unread_bytes;
  nanoseconds grpc_send_timeout = InferenceOptions().send_timeout;
  uint64_t max_constraint_bytes = ConstraintOptions().max_source_bytes;
  nanoseconds constraint_timeout = ConstraintOptions().compile_timeout;
  uint64_t constraint_memory = ConstraintOptions().compile_memory;
  uint64_t constraint_compilers = ConstraintOptions().compilers;
  uint64_t max_waiting_constraints = ConstraintOptions().waiting;
  nanoseconds constraint_mask_time = ConstraintOptions().mask_time;
  uint64_t constraint_cache = ConstraintOptions().kept_bytes;
  uint64_t max_waiting_texts = FairCallsOptions().most_bytes;
  nanoseconds register_timeout = MembershipOptions().register_timeout;
  nanoseconds dial_back_timeout = MembershipOptions().dial_back_timeout;
  nanoseconds measure_again = CoordinatorOptions().measure_again;
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
  bool http_tls = false;
  std::string http_tls_dir;
  std::string http_allow_origins;
  std::string http_allow_hosts;
  uint64_t max_http_memory = uint64_t{1} << 30;
  uint64_t max_http_answer = HttpApiOptions().max_answer_bytes;
  uint64_t max_upload = ModelIntakeOptions().max_upload_bytes;
  std::string log_level = "info";
  std::string log_format = "auto";
  std::string log_requests = "on";
};

// Adds a flag for each field of `f`, which outlives `flags`.
void Register(Flags* flags, ServeFlags* f);

// INVALID_ARGUMENT for values that do not go together, though each is in its bounds. The message is
// the sentence for people.
absl::Status Check(const ServeFlags& f);

// `off_loopback`: whether gRPC or HTTP listens where other machines reach it.
CoordinatorOptions CoordinatorOptionsOf(const ServeFlags& f, bool off_loopback);
MembershipOptions MembershipOptionsOf(const ServeFlags& f);
// INVALID_ARGUMENT for an origin or a host name that is none.
absl::StatusOr<WebOriginOptions> WebOptionsOf(const ServeFlags& f);

}  // namespace strata

#endif  // STRATA_COORDINATOR_SERVE_FLAGS_H_
