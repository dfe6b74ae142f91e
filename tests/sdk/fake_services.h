// The services of the fake coordinator, and the state that they share.
#ifndef STRATA_TESTS_SDK_FAKE_SERVICES_H_
#define STRATA_TESTS_SDK_FAKE_SERVICES_H_

#include <grpcpp/support/status.h>

#include <deque>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "common/mutex.h"
#include "common/rpc/blocking_call.h"
#include "common/rpc/transport.h"
#include "strata/v1/admin.pb.h"
#include "strata/v1/inference.pb.h"
#include "tests/sdk/fake_coordinator.h"

namespace strata::testing {

// What the services share: what was asked for, and what arrived.
struct FakeState {
  mutable Mutex mutex;
  std::deque<Mishap> mishaps STRATA_GUARDED_BY(mutex);
  std::vector<v1::GenerateRequest> requests STRATA_GUARDED_BY(mutex);
  v1::LoadModelRequest load STRATA_GUARDED_BY(mutex);
  v1::PullModelRequest pull STRATA_GUARDED_BY(mutex);
  std::string authorization STRATA_GUARDED_BY(mutex);
  std::string upload_name STRATA_GUARDED_BY(mutex);
  std::vector<std::pair<std::string, std::string>> upload STRATA_GUARDED_BY(mutex);
  int cancelled STRATA_GUARDED_BY(mutex) = 0;
  size_t hold_until STRATA_GUARDED_BY(mutex) = 0;
  int pace_ms STRATA_GUARDED_BY(mutex) = 0;
  int load_pace_ms STRATA_GUARDED_BY(mutex) = 0;
  std::vector<v1::Key> keys STRATA_GUARDED_BY(mutex);
  v1::GetStatusResponse status;
  v1::Plan plan;
  bool predicts = true;  // It plans for its own nodes with what it predicts.

  void SawCancel() {
    MutexLock lock(&mutex);
    ++cancelled;
  }
};

inline constexpr uint64_t kFakeAuditEntries = 2500;

// Services over `state`, which outlives them.
std::unique_ptr<IoService> MakeFakeInference(FakeState* state);
std::unique_ptr<IoService> MakeFakeAdmin(FakeState* state);
std::unique_ptr<IoService> MakeFakeAudit();
std::unique_ptr<IoService> MakeFakePlanning(FakeState* state);

// How both refuse a model that they do not know.
grpc::Status NoSuchModel(const std::string& name);
void SleepMs(int ms);
// Sleeps, unless the call is cancelled before.
void Pace(const CallContext& context, int ms);

}  // namespace strata::testing

#endif  // STRATA_TESTS_SDK_FAKE_SERVICES_H_
