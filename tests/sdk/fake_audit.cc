// A long audit, of calls by turns.
#include <algorithm>
#include <functional>
#include <memory>
#include <string>

#include "common/rpc/blocking_call.h"
#include "common/rpc/call_threads.h"
#include "common/rpc/io_loop.h"
#include "strata/v1/audit.grpc.pb.h"
#include "tests/sdk/fake_services.h"

namespace strata::testing {
namespace {

class FakeAudit : public IoService {
 public:
  grpc::Service* NewService() override {
    service_ = std::make_unique<v1::AuditService::AsyncService>();
    return service_.get();
  }
  void Serve(IoLoop* loop) override {
    const BlockingMethods calls(service_.get(), loop, &threads_);
    calls.Serve(&v1::AuditService::AsyncService::RequestListAudit,
                std::bind_front(&FakeAudit::ListAudit, this));
  }

 private:
  grpc::Status ListAudit(CallContext*, const v1::ListAuditRequest* request,
                         v1::ListAuditResponse* response) {
    const uint64_t first = request->before() == 0 ? kFakeAuditEntries : request->before() - 1;
    for (uint64_t number = first; number > 0; --number) {
      v1::AuditEntry entry;
      entry.set_number(number);
      entry.set_time_ms(1'700'000'000'000 + number * 1000);
      entry.set_call("DrainNode");
      entry.set_object(number % 2 == 0 ? "a" : "");
      entry.set_who(number % 2 == 0 ? "operator anna" : "client bob");
      entry.set_address(number % 2 == 0 ? "10.0.0.9" : "");
      entry.set_refused(number % 2 == 1);
      entry.set_outcome(number % 2 == 1 ? "ROLE_MAY_NOT" : number % 4 == 0 ? "OK" : "");
      entry.set_times(number % 2 == 1 ? 4 : 1);
      if (entry.time_ms() < request->since_ms() ||
          entry.who().find(request->who()) == std::string::npos) {
        continue;
      }
      *response->add_entries() = entry;
      if (response->entries().size() == static_cast<int>(request->limit())) break;
    }
    return grpc::Status::OK;
  }

  std::unique_ptr<v1::AuditService::AsyncService> service_;
  CallThreads threads_{{}};
};

}  // namespace

std::unique_ptr<IoService> MakeFakeAudit() { return std::make_unique<FakeAudit>(); }

}  // namespace strata::testing
