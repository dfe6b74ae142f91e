#include "coordinator/service/calls/audit_service.h"

#include <algorithm>
#include <functional>

#include "common/rpc/status.h"
#include "coordinator/service/calls/audited_call.h"

namespace strata {
namespace {

constexpr uint32_t kMostEntries = 1000;  // Of one answer, which stays far below 4 MiB.

CallThreadsOptions ForReaders() {
  CallThreadsOptions options;
  options.threads = 1;  // The store takes one at a time.
  options.waiting = 64;
  options.name = "audit_calls";
  return options;
}

}  // namespace

AuditServiceImpl::AuditServiceImpl(Coordinator* coordinator, AuditLog* audit)
    : coordinator_(coordinator), audit_(audit), threads_(ForReaders()) {}

grpc::Service* AuditServiceImpl::NewService() {
  service_ = std::make_unique<v1::AuditService::AsyncService>();
  return service_.get();
}

void AuditServiceImpl::Serve(IoLoop* loop) {
  using Async = v1::AuditService::AsyncService;
  const BlockingMethods calls(service_.get(), loop, &threads_);
  calls.Serve(&Async::RequestListAudit, std::bind_front(&AuditServiceImpl::ListAudit, this));
}

grpc::Status AuditServiceImpl::ListAudit(CallContext* context, const v1::ListAuditRequest* request,
                                         v1::ListAuditResponse* response) {
  const absl::Status may =
      CheckOperator(context->grpc(), coordinator_->keys(), audit_, "ListAudit");
  if (!may.ok()) {
    return ToGrpc(may);
  }
  AuditQuery query;
  query.since_ms = request->since_ms();
  query.who = request->who();
  if (request->before() != 0) query.before = request->before();
  query.limit = request->limit() == 0 ? kMostEntries : std::min(request->limit(), kMostEntries);
  const auto entries = audit_->List(query);
  if (!entries.ok()) {
    return ToGrpc(entries.status());
  }
  for (const AuditEntry& entry : *entries) {
    v1::AuditEntry* out = response->add_entries();
    out->set_number(entry.number);
    out->set_time_ms(entry.time_ms);
    out->set_who(entry.who);
    out->set_address(entry.address);
    out->set_call(entry.call);
    out->set_object(entry.object);
    out->set_outcome(entry.outcome);
    out->set_refused(entry.refused);
    out->set_times(entry.times);
  }
  return grpc::Status::OK;
}

}  // namespace strata
