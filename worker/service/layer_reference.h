// One layer after the other of a short sequence, each loaded alone: what the stages of a deployment
// are compared with. It shares nothing with them but the backend, the cache of weights as they are
// stored, and --memory.
#ifndef STRATA_WORKER_SERVICE_LAYER_REFERENCE_H_
#define STRATA_WORKER_SERVICE_LAYER_REFERENCE_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/mutex.h"
#include "strata/v1/membership.pb.h"
#include "worker/service/outbox.h"
#include "worker/service/stage_loader.h"

namespace strata {

// The rows of one check as the newest of its layers left them. One thread.
class LayerRows {
 public:
  // INVALID_ARGUMENT (BAD_CHECK): they are not 1 to 256, or what layers before made of them is no
  // finite numbers.
  static absl::StatusOr<LayerRows> Of(const v1::ComputeLayers& first);

  // Loads the layer of the message, which is the next one, has it compute the rows under `compute`,
  // a few at a time (the load's max_batch_tokens), and drops it. Errors: those of LoadStage,
  // BAD_CHECK, or the backend's.
  absl::StatusOr<v1::LayersComputed> Compute(const v1::ComputeLayers& message, LoadContext context,
                                             Mutex* compute, LoadCounters* counters,
                                             Cancellation* cancel);

 private:
  absl::Status ComputeRows(const LoadedStage& stage, Mutex* compute, std::vector<uint64_t>* logits);

  uint64_t check_ = 0;
  std::vector<uint32_t> ids_;
  uint32_t next_ = 0;          // Layer.
  std::vector<float> hidden_;  // Float32 [ids, hidden], once a layer was computed, or brought so.
};

// Runs checks for the coordinator, one at a time, on a thread of its own. Any thread.
class LayerReference {
 public:
  struct Parts {
    std::string node;     // Named in errors.
    LoadContext context;  // Packed weights are neither read nor kept: they are to be compared too.
    Mutex* compute = nullptr;
  };

  explicit LayerReference(Parts parts);
  ~LayerReference();  // Waits for the layer at hand.
  LayerReference(const LayerReference&) = delete;
  LayerReference& operator=(const LayerReference&) = delete;

  // The answer goes to `out`. RESOURCE_EXHAUSTED (CHECK_RUNNING) while there is another check,
  // FAILED_PRECONDITION (CHECK_UNKNOWN) for a later layer of one that is not there. Does not wait.
  void OnMessage(const v1::ComputeLayers& message, std::shared_ptr<Outbox> out);
  // Ends the check, if there is one; it is answered with `why`. Its memory is free soon after.
  void End(const absl::Status& why);
  bool busy() const;

 private:
  struct Job {
    v1::ComputeLayers message;
    std::shared_ptr<Outbox> out;
  };

  void Loop();
  v1::LayersComputed Run(const v1::ComputeLayers& message, Cancellation* cancel);
  void Answer(uint64_t check, v1::LayersComputed computed, Outbox* out) const;

  const Parts parts_;
  mutable Mutex mutex_;
  CondVar changed_;
  bool stopping_ STRATA_GUARDED_BY(mutex_) = false;
  uint64_t check_ STRATA_GUARDED_BY(mutex_) = 0;   // 0: there is none.
  bool ending_ STRATA_GUARDED_BY(mutex_) = false;  // It is to end.
  absl::Status why_ STRATA_GUARDED_BY(mutex_);  // With `ending_`; ok: nobody waits for an answer.
  std::optional<Job> job_ STRATA_GUARDED_BY(mutex_);  // The next layer.
  bool computing_ STRATA_GUARDED_BY(mutex_) = false;
  uint64_t ended_ STRATA_GUARDED_BY(mutex_) = 0;  // The check before, and why End was called.
  absl::Status ended_why_ STRATA_GUARDED_BY(mutex_);
  std::shared_ptr<Cancellation> cancel_ STRATA_GUARDED_BY(mutex_);  // Of the check.

  // Of the thread.
  std::optional<LayerRows> rows_;
  std::unique_ptr<LoadCounters> counters_;

  std::thread thread_;  // Last: it uses the others.
};

}  // namespace strata

#endif  // STRATA_WORKER_SERVICE_LAYER_REFERENCE_H_
