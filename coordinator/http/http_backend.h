// What the HTTP API needs of a coordinator, so that a test can stand in for one.
#ifndef STRATA_COORDINATOR_HTTP_HTTP_BACKEND_H_
#define STRATA_COORDINATOR_HTTP_HTTP_BACKEND_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "common/clock.h"
#include "coordinator/keys/caller.h"
#include "coordinator/metrics/metrics.h"
#include "coordinator/service/process/generation.h"
#include "coordinator/service/request/model_runtime.h"
#include "strata/v1/admin.pb.h"
#include "strata/v1/inference.pb.h"

namespace strata {

// One answer in the making: Generation's contract.
class HttpGeneration {
 public:
  virtual ~HttpGeneration() = default;
  virtual void Run(const v1::GenerateRequest& request) = 0;
  virtual void Cancel() = 0;
  virtual void ReaderChanged() = 0;
};

// Any thread. Errors are Coordinator's.
class HttpBackend {
 public:
  virtual ~HttpBackend() = default;

  virtual TimePoint Now() const = 0;
  virtual absl::StatusOr<std::shared_ptr<Caller>> Authenticate(std::string_view authorization) = 0;
  virtual bool Healthy() const = 0;  // Whether a request would be served.
  // For a request that names none.
  virtual std::string DrawRequestId() = 0;
  virtual uint64_t DrawSeed() = 0;
  virtual absl::StatusOr<std::vector<v1::Model>> ListModels() = 0;
  virtual absl::StatusOr<v1::Model> GetModel(const std::string& name) = 0;
  virtual absl::StatusOr<std::shared_ptr<const ModelRuntime>> GetRuntime(
      const std::string& name) = 0;
  // What EncodePrompt asks for.
  virtual absl::StatusOr<PromptLimit> LongestPrompt(const std::string& model) {
    return PromptLimit();
  }
  virtual absl::StatusOr<std::string> MetricsText() = 0;
  // `receiver` lives until its OnEnd.
  virtual std::shared_ptr<HttpGeneration> NewGeneration(const GenerationOptions& options,
                                                        GenerationReceiver* receiver) = 0;
};

// `coordinator` outlives it, and what it made. `certificates`, for metrics: asked by any thread.
std::unique_ptr<HttpBackend> MakeHttpBackend(
    Coordinator* coordinator, std::function<std::vector<CertificateEnd>()> certificates = {});

}  // namespace strata

#endif  // STRATA_COORDINATOR_HTTP_HTTP_BACKEND_H_
