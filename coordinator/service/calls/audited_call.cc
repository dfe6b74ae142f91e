#include "coordinator/service/calls/audited_call.h"

#include <chrono>
#include <memory>

#include "common/rpc/peer_role.h"
#include "common/rpc/status.h"
#include "coordinator/service/calls/authorization.h"

namespace strata {
namespace {

uint64_t UnixMs() {
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  return static_cast<uint64_t>(std::chrono::duration_cast<std::chrono::milliseconds>(now).count());
}

}  // namespace

AuditCall CallerOf(const grpc::ServerContext& context, KeyRing* keys, std::string_view name) {
  AuditCall call;
  call.call = name;
  call.address = PeerAddress(context);
  call.who = PeerHolder(context);
  const std::string_view authorization = AuthorizationOf(context);
  if (keys != nullptr && !authorization.empty()) {
    if (const auto caller = keys->Authenticate(authorization, UnixMs() / 1000);
        caller.ok() && *caller != nullptr) {
      const std::string& id = (*caller)->id();
      const std::string& of = (*caller)->name();
      call.who += (call.who.empty() ? "key " : ", key ") + (of.empty() ? id : of + " (" + id + ")");
    }
  }
  if (call.who.empty()) call.who = "plain text";
  return call;
}

std::string ObjectOf(const google::protobuf::Message& request) {
  const google::protobuf::Descriptor* type = request.GetDescriptor();
  for (const char* name : {"name", "model", "id", "repository", "path"}) {
    const google::protobuf::FieldDescriptor* field = type->FindFieldByName(name);
    if (field == nullptr || field->is_repeated() ||
        field->cpp_type() != google::protobuf::FieldDescriptor::CPPTYPE_STRING) {
      continue;
    }
    std::string value = request.GetReflection()->GetString(request, field);
    if (!value.empty()) {
      return value;
    }
  }
  return "";
}

AuditedCall::AuditedCall(AuditLog* log, const AuditCall& call) : log_(log) {
  if (log_ != nullptr) entry_ = log_->Begin(call, UnixMs());
}

void AuditedCall::End(const grpc::Status& outcome) { End(FromGrpc(outcome)); }

void AuditedCall::End(const absl::Status& outcome) {
  if (log_ != nullptr) log_->End(entry_, outcome);
}

absl::Status CheckOperator(const grpc::ServerContext& context, KeyRing* keys, AuditLog* log,
                           std::string_view name) {
  absl::Status may = CheckPeerRole(context, CallFor::kOperators);
  if (may.ok()) {
    may = keys->AuthenticateOperator(AuthorizationOf(context), OperatorCall::kAny, UnixMs() / 1000)
              .status();
  }
  if (!may.ok()) AuditRefusal(log, CallerOf(context, keys, name), may);
  return may;
}

void AuditRefusal(AuditLog* log, const AuditCall& call, const absl::Status& why, RefusedOf of) {
  if (log != nullptr) log->Refuse(call, why, UnixMs(), of);
}

RefusedCalls::RefusedCalls(AuditLog* log)
    : log_(log),
      thread_({.threads = 1, .waiting = kMostWaiting, .name = "refused_calls", .hint = ""}) {}

void RefusedCalls::Add(const grpc::ServerContext& context, std::string_view call,
                       const absl::Status& why) {
  if (thread_.waiting() >= kMostWaiting) {
    return;  // Before anything is made of the caller's certificate.
  }
  (void)thread_.Run([log = log_, refused = CallerOf(context, nullptr, call), why] {
    AuditRefusal(log, refused, why, RefusedOf::kOthers);
  });
}

}  // namespace strata
