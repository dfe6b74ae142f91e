#include "sdk/cpp/client_impl.h"

#include <algorithm>

#include "common/rpc/address.h"
#include "common/rpc/connection_probe.h"
#include "common/rpc/status.h"
#include "common/rpc/transport.h"

namespace strata::sdk {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

constexpr milliseconds kPoll{50};
constexpr milliseconds kProbeTimeout{200};

std::chrono::system_clock::time_point ToSystem(SteadyTime time) {
  const auto left =
      std::min<steady_clock::duration>(time - steady_clock::now(), std::chrono::hours(24 * 365));
  return std::chrono::system_clock::now() +
         std::chrono::duration_cast<std::chrono::system_clock::duration>(left);
}

// Whether a cause stays, however long one waits.
bool IsHopeless(const absl::Status& cause) {
  return IsLastingCause(cause) || cause.message() == "connection refused" ||
         cause.message() == "the name does not resolve";
}

bool IsUntyped(const grpc::Status& status) { return status.error_details().empty(); }

}  // namespace

std::optional<SteadyTime> DeadlineOf(const CallOptions& call) {
  if (!call.timeout.has_value()) {
    return std::nullopt;
  }
  return steady_clock::now() + std::chrono::duration_cast<steady_clock::duration>(*call.timeout);
}

absl::Status CancelledError() {
  return Error(absl::StatusCode::kCancelled, "CANCELLED", "cancelled by the caller");
}

absl::Status DeadlineError() {
  return Error(absl::StatusCode::kDeadlineExceeded, "DEADLINE_EXCEEDED",
               "the deadline passed before the answer was complete")
      .Hint("give it more time, or see with `strata status` what it waits for");
}

bool IsConnectionLoss(const grpc::Status& status) {
  // A server that is shut down ends its calls with CANCELLED.
  return IsUntyped(status) && (status.error_code() == grpc::StatusCode::UNAVAILABLE ||
                               status.error_code() == grpc::StatusCode::CANCELLED);
}

Client::Impl::Impl(ClientOptions options, const Transport& transport, std::string address)
    : options_(std::move(options)),
      transport_(transport),
      address_(std::move(address)),
      channel_(transport.MakeChannel(address_)),
      admin_(v1::AdminService::NewStub(channel_)),
      inference_(v1::InferenceService::NewStub(channel_)),
      tokens_(v1::TokenService::NewStub(channel_)),
      audit_(v1::AuditService::NewStub(channel_)),
      doctor_(v1::DoctorService::NewStub(channel_)),
      certificates_(v1::CertificateService::NewStub(channel_)),
      planning_(v1::PlanningService::NewStub(channel_)) {}

absl::StatusOr<std::shared_ptr<Client::Impl>> Client::Impl::Make(const ClientOptions& options) {
  ASSIGN_OR_RETURN(const HostPort address, ParseDialled(options.coordinator));
  ASSIGN_OR_RETURN(const Transport transport,
                   Transport::Make({.tls_dir = options.tls_dir,
                                    .insecure = false,
                                    .follow_files = options.follow_tls_files}));
  return std::shared_ptr<Impl>(new Impl(options, transport, address.ToString()));
}

absl::Status Client::Impl::WaitConnected(std::chrono::nanoseconds patience,
                                         std::optional<SteadyTime> deadline, bool patient,
                                         const std::optional<Cancellation>& cancellation) {
  absl::Status cause;
  // Patience is spent only while this process runs: on a machine that stalls, the time is not
  // over before the answer that waits in the socket was read.
  std::chrono::nanoseconds waited{0};
  SteadyTime last = steady_clock::now();
  grpc_connectivity_state before = GRPC_CHANNEL_IDLE;
  while (true) {
    const grpc_connectivity_state state = channel_->GetState(/*try_to_connect=*/true);
    if (state == GRPC_CHANNEL_READY) {
      return absl::OkStatus();
    }
    if (cancellation.has_value() && cancellation->cancelled()) {
      return CancelledError();
    }
    if (state == GRPC_CHANNEL_TRANSIENT_FAILURE && state != before) {
      cause = ConnectFailure();
    }
    before = state;
    const SteadyTime now = steady_clock::now();
    waited += std::min<std::chrono::nanoseconds>(now - last, kPoll + kProbeTimeout);
    last = now;
    if (deadline.has_value() && now >= *deadline) {
      return DeadlineError();
    }
    if (waited >= patience || (!patient && IsHopeless(cause))) {
      break;
    }
    channel_->WaitForStateChange(state, ToSystem(now + kPoll));
  }
  const v1::ErrorDetail detail = DetailOf(cause);
  return Error(absl::StatusCode::kUnavailable, "COORDINATOR_UNREACHABLE",
               "no coordinator answers at " + options_.coordinator +
                   (cause.ok() ? "" : " (" + detail.message() + ")"))
      .Hint(!detail.hint().empty()
                ? detail.hint()
                : "start strata-coordinator there, or give the right address with --coordinator "
                  "HOST:PORT or STRATA_COORDINATOR");
}

absl::Status Client::Impl::ConnectFailure() {
  if (transport_.secure()) {
    return transport_.Probe(address_, kProbeTimeout);
  }
  // The channel's state does not say why; a call that fails on it does.
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + kProbeTimeout);
  v1::ListSessionsResponse ignored;
  const grpc::Status status = admin_->ListSessions(&context, v1::ListSessionsRequest(), &ignored);
  if (status.error_code() != grpc::StatusCode::UNAVAILABLE || !IsUntyped(status)) {
    return absl::OkStatus();
  }
  std::string cause = ConnectCause(status.error_message());
  if (cause == "it closes the connection") {
    cause += "; does it want --tls-dir?";
  }
  return Error(absl::StatusCode::kUnavailable, "", cause);
}

absl::Status Client::Impl::Prepare(grpc::ClientContext* context,
                                   std::optional<SteadyTime> deadline) const {
  if (deadline.has_value()) {
    if (*deadline <= steady_clock::now()) {
      return DeadlineError();
    }
    context->set_deadline(ToSystem(*deadline));
  }
  if (!options_.api_key.empty()) {
    context->AddMetadata("authorization", "Bearer " + options_.api_key);
  }
  return absl::OkStatus();
}

absl::Status Client::Impl::Begin(const CallOptions& call,
                                 std::optional<std::chrono::nanoseconds> default_limit,
                                 grpc::ClientContext* context) {
  CallOptions limited = call;
  if (!limited.timeout.has_value()) {
    limited.timeout = default_limit;
  }
  const std::optional<SteadyTime> deadline = DeadlineOf(limited);
  RETURN_IF_ERROR(
      WaitConnected(options_.connect_timeout, deadline, /*patient=*/false, call.cancellation));
  return Prepare(context, deadline);
}

absl::Status Client::Impl::ToStatus(const grpc::Status& status) const {
  if (status.ok() || !IsUntyped(status)) {
    return FromGrpc(status);
  }
  switch (status.error_code()) {
    case grpc::StatusCode::CANCELLED:
      return CancelledError();
    case grpc::StatusCode::DEADLINE_EXCEEDED:
      return DeadlineError();
    case grpc::StatusCode::UNAVAILABLE:
      return Error(absl::StatusCode::kUnavailable, "CONNECTION_LOST",
                   "lost the connection to the coordinator at " + options_.coordinator + " (" +
                       ConnectCause(status.error_message()) + ")")
          .Hint("see whether it still runs, then try again");
    case grpc::StatusCode::UNIMPLEMENTED:
      return Error(absl::StatusCode::kUnimplemented, "UNKNOWN_CALL",
                   "what listens at " + options_.coordinator + " does not know this call")
          .Hint("give the address of a strata-coordinator of this version");
    default:
      return FromGrpc(status);
  }
}

}  // namespace strata::sdk
