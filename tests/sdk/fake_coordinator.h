// A coordinator without a cluster: real gRPC services whose answers are a function of the request,
// with the misfortunes that tests ask for.
#ifndef STRATA_TESTS_SDK_FAKE_COORDINATOR_H_
#define STRATA_TESTS_SDK_FAKE_COORDINATOR_H_

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "strata/v1/admin.pb.h"
#include "strata/v1/inference.pb.h"

namespace strata::testing {

inline constexpr uint32_t kFakeVocab = 5;
inline constexpr char kFakeClass[] = "fake-1/w=f32,head=f32,act=f32/kv=f16";
// Token `index` of an answer under `seed`, and its text.
uint32_t FakeToken(uint64_t seed, uint32_t index);
std::string FakeText(uint64_t seed, uint32_t index);
float FakeLogprob(uint64_t seed, uint32_t index);
float FakeLogit(uint32_t row, uint32_t column);

// How one Generate call goes wrong. Calls take these in order; without one a call goes well.
struct Mishap {
  enum Kind {
    kNone,
    kBreak,       // The transport's UNAVAILABLE after `after` tokens.
    kNotYet,      // A typed UNAVAILABLE after `after` tokens.
    kOtherToken,  // From token `after` on another token than it should be.
    kOtherClass,  // Another numerics class.
    kNewClass,    // From token `after` on another numerics class than before.
    kHang,        // Nothing more after `after` tokens, until cancelled.
    kCancelled,   // Ends after `after` tokens as if cancelled by somebody.
    kNoFinish,    // Ends well after `after` tokens without saying why.
    kFail,        // A typed RESOURCE_EXHAUSTED before anything.
  };
  Kind kind = kNone;
  uint32_t after = 0;
};

class FakeCoordinator {
 public:
  // Listens on 127.0.0.1, on a free port if 0.
  explicit FakeCoordinator(int port = 0);
  ~FakeCoordinator();

  const std::string& address() const;
  int port() const;
  // Stops listening and breaks what is connected; then listens on the same port again.
  void Stop();
  void Start();

  void Plan(std::deque<Mishap> mishaps);
  // No answer begins before so many requests to generate have come.
  void HoldUntil(size_t requests);
  // Tokens of an answer when the request does not say; milliseconds between them.
  void SetPaceMs(int ms);
  // The messages of the next Load, Add and Pull calls come this far apart.
  void SetLoadPaceMs(int ms);

  // What arrived.
  std::vector<v1::GenerateRequest> generate_requests() const;
  v1::LoadModelRequest last_load() const;
  v1::PullModelRequest last_pull() const;
  std::string last_authorization() const;
  std::string uploaded_name() const;
  std::vector<std::pair<std::string, std::string>> uploaded_files() const;  // Name, bytes.
  int cancelled_calls() const;  // Calls whose client went away.
  // The cluster as the admin calls tell it. Not while calls run.
  v1::GetStatusResponse* status();
  v1::Plan* plan();
  // As of a version that only plans for machines with what it predicts. Not while calls run.
  void PredictNothingHere();

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace strata::testing

#endif  // STRATA_TESTS_SDK_FAKE_COORDINATOR_H_
