// The connection behind sdk::Client, and how each call is made.
#ifndef STRATA_SDK_CPP_CLIENT_IMPL_H_
#define STRATA_SDK_CPP_CLIENT_IMPL_H_

#include <grpcpp/channel.h>
#include <grpcpp/client_context.h>

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "common/rpc/transport.h"
#include "common/status.h"
#include "sdk/cpp/cancellation.h"
#include "sdk/cpp/strata.h"
#include "strata/v1/admin.grpc.pb.h"
#include "strata/v1/audit.grpc.pb.h"
#include "strata/v1/certificates.grpc.pb.h"
#include "strata/v1/diagnosis.grpc.pb.h"
#include "strata/v1/inference.grpc.pb.h"
#include "strata/v1/joining.grpc.pb.h"
#include "strata/v1/planning.grpc.pb.h"

namespace strata::sdk {

using SteadyTime = std::chrono::steady_clock::time_point;

class Client::Impl {
 public:
  static absl::StatusOr<std::shared_ptr<Impl>> Make(const ClientOptions& options);

  const ClientOptions& options() const { return options_; }
  v1::AdminService::Stub& admin() { return *admin_; }
  v1::InferenceService::Stub& inference() { return *inference_; }
  v1::TokenService::Stub& tokens() { return *tokens_; }
  v1::AuditService::Stub& audit() { return *audit_; }
  v1::DoctorService::Stub& doctor() { return *doctor_; }
  v1::CertificateService::Stub& certificates() { return *certificates_; }
  v1::PlanningService::Stub& planning() { return *planning_; }

  // Waits until the channel is connected. UNAVAILABLE, COORDINATOR_UNREACHABLE when it was not for
  // `patience`, or at once when the address refuses connections and `patient` is false.
  // DEADLINE_EXCEEDED when `deadline` passed before that.
  absl::Status WaitConnected(std::chrono::nanoseconds patience, std::optional<SteadyTime> deadline,
                             bool patient, const std::optional<Cancellation>& cancellation);

  // Puts deadline and key into the context. CANCELLED or DEADLINE_EXCEEDED when it is too late.
  absl::Status Prepare(grpc::ClientContext* context, std::optional<SteadyTime> deadline) const;

  // Ours, from a call's end. Untyped failures of the transport get a reason and a hint.
  absl::Status ToStatus(const grpc::Status& status) const;

  // One request, one answer: `method` is the stub's call.
  template <typename Response>
  absl::StatusOr<Response> Unary(
      const CallOptions& call,
      const std::function<grpc::Status(grpc::ClientContext*, Response*)>& method) {
    grpc::ClientContext context;
    const CancelScope scope(call.cancellation, [&context] { context.TryCancel(); });
    RETURN_IF_ERROR(Begin(call, kUnaryTimeout, &context));
    Response response;
    RETURN_IF_ERROR(ToStatus(method(&context, &response)));
    return response;
  }

  // One request, many answers.
  template <typename Response>
  absl::Status ServerStream(
      const CallOptions& call,
      const std::function<std::unique_ptr<grpc::ClientReader<Response>>(grpc::ClientContext*)>&
          start,
      const std::function<void(Response&&)>& on_message) {
    grpc::ClientContext context;
    const CancelScope scope(call.cancellation, [&context] { context.TryCancel(); });
    RETURN_IF_ERROR(Begin(call, std::nullopt, &context));
    const auto reader = start(&context);
    Response response;
    while (reader->Read(&response)) {
      on_message(std::move(response));
      response.Clear();
    }
    return ToStatus(reader->Finish());
  }

  absl::StatusOr<TokenizedPrompt> Tokenize(const v1::TokenizeRequest& request,
                                           const CallOptions& call);

  // Connects and prepares `context` for `call`.
  absl::Status Begin(const CallOptions& call, std::optional<std::chrono::nanoseconds> default_limit,
                     grpc::ClientContext* context);

 private:
  static constexpr std::chrono::seconds kUnaryTimeout{60};

  Impl(ClientOptions options, const Transport& transport, std::string address);
  // Why the channel does not connect; OK if it does after all.
  absl::Status ConnectFailure();

  const ClientOptions options_;
  const Transport transport_;
  const std::string address_;
  const std::shared_ptr<grpc::Channel> channel_;
  const std::unique_ptr<v1::AdminService::Stub> admin_;
  const std::unique_ptr<v1::InferenceService::Stub> inference_;
  const std::unique_ptr<v1::TokenService::Stub> tokens_;
  const std::unique_ptr<v1::AuditService::Stub> audit_;
  const std::unique_ptr<v1::DoctorService::Stub> doctor_;
  const std::unique_ptr<v1::CertificateService::Stub> certificates_;
  const std::unique_ptr<v1::PlanningService::Stub> planning_;
};

// The end of a call that begins now, or none.
std::optional<SteadyTime> DeadlineOf(const CallOptions& call);
absl::Status CancelledError();
absl::Status DeadlineError();
// Whether the connection was lost, as against an answer of the coordinator.
bool IsConnectionLoss(const grpc::Status& status);

}  // namespace strata::sdk

#endif  // STRATA_SDK_CPP_CLIENT_IMPL_H_
