// Answers the coordinator's questions about this machine and the ways from it.
#ifndef STRATA_WORKER_SERVICE_DIAGNOSIS_SERVICE_H_
#define STRATA_WORKER_SERVICE_DIAGNOSIS_SERVICE_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "common/examination/examine.h"
#include "common/rpc/transport.h"

namespace strata {

// Any thread. Few calls at a time; those that dial take as long as they are told.
class DiagnosisService : public IoService {
 public:
  struct Self {
    ExamineOptions examine;
    std::string coordinator;  // As this worker dials it.
    std::function<uint64_t()> cache_bytes;
    std::function<std::string()> metrics;
  };

  // `transport` outlives it.
  explicit DiagnosisService(const Transport* transport);
  ~DiagnosisService() override;  // The server is gone.

  // Until then calls are refused with UNAVAILABLE (STARTING).
  void Set(Self self);

  // IoService.
  grpc::Service* NewService() override;
  void Serve(IoLoop* loop) override;

 private:
  class Impl;
  const std::unique_ptr<Impl> impl_;
};

}  // namespace strata

#endif  // STRATA_WORKER_SERVICE_DIAGNOSIS_SERVICE_H_
