// One request on its way through the coordinator, from a client's message to the last piece of its
// answer: what gRPC's Generate and the routes of HTTP share.
#ifndef STRATA_COORDINATOR_SERVICE_PROCESS_GENERATION_H_
#define STRATA_COORDINATOR_SERVICE_PROCESS_GENERATION_H_

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "common/clock.h"
#include "coordinator/keys/caller.h"
#include "coordinator/metrics/metrics.h"
#include "coordinator/service/process/coordinator.h"
#include "coordinator/service/request/request.h"
#include "coordinator/service/running/live_requests.h"
#include "strata/v1/inference.pb.h"

namespace strata {

// Told of one answer, one call at a time, mostly on the coordinator's loop: must neither wait nor
// call the coordinator, but may call Generation::Cancel.
class GenerationReceiver {
 public:
  virtual ~GenerationReceiver() = default;
  // The pieces of the answer, in order.
  virtual void OnMessage(v1::GenerateResponse message) = 0;
  // Whether so much of the answer is unread that the rest should wait. Asked when it runs, and
  // after Generation::ReaderChanged.
  virtual bool Behind() { return false; }
  // Exactly once, last; ok after a message with `finish`. The receiver may be gone afterwards.
  virtual void OnEnd(const absl::Status& status) = 0;
};

struct GenerationOptions {
  std::optional<TimePoint> deadline;
  uint32_t default_max_tokens = 512;  // Where the request has none.
  AdmissionTimes times = {};          // `arrived` and `taken`, where they are to be measured.
  // Whose request it is, and what counts for limits. One of several answers to the same call shares
  // it with the others. Null: nobody's, and nothing counts.
  std::shared_ptr<KeyUse> use = nullptr;
  bool charge_prompt = true;  // Else another answer of the call is charged for the same prompt.
  // Instead of the request's own: of several answers to it, which are run one after another.
  std::shared_ptr<SharedPrompt> prompt = nullptr;
};

class Generation : public std::enable_shared_from_this<Generation> {
 public:
  // `coordinator` outlives it, `receiver` lives until OnEnd. Without Run nothing is ever told.
  Generation(Coordinator* coordinator, GenerationOptions options, GenerationReceiver* receiver)
      : coordinator_(coordinator),
        deadline_(options.deadline),
        default_max_tokens_(options.default_max_tokens),
        charge_prompt_(options.charge_prompt),
        times_(options.times),
        receiver_(receiver),
        prompt_(std::move(options.prompt)),
        use_(std::move(options.use)) {}

  // Tokenizes and hands `request` to its model's engine. Once; on a thread that may be kept for as
  // long as templates and texts take, so never on the loop. `request` may be the receiver's own: it
  // is not looked at once the receiver may have been told the end.
  void Run(const v1::GenerateRequest& request);
  // Nobody listens any more: ends the request, with reason "cancelled" or CANCELLED, unless it has
  // ended. Any thread, at any time; does not wait.
  void Cancel();
  // The receiver's Behind() says something new. Any thread, while the receiver lives; does not
  // wait.
  void ReaderChanged();

 private:
  class Sink;

  // On the event loop. The status of a request that did not get as far as the engine.
  absl::Status Submit(const Serving& serving, ResolvedRequest* request,
                      const std::shared_ptr<Sink>& sink);

  // What the answer is to be held to; nullopt: nothing.
  absl::StatusOr<std::optional<AnswerWanted>> Wanted(const ModelRuntime& model,
                                                     ResolvedRequest* request) const;
  // Why nobody wants the answer any more; ok as long as somebody does. Any thread.
  absl::Status Still() const;
  // Hands it to the engine.
  void HandOver(const std::string& model, const std::shared_ptr<ResolvedRequest>& request,
                const std::shared_ptr<Sink>& sink);
  // Admits what was resolved, or RESOURCE_EXHAUSTED as KeyUse::Admit says it.
  absl::Status Admit(ResolvedRequest* request);
  // The last of it: gives up its part of the use, then tells the receiver.
  void End(const absl::Status& status);

  Coordinator* const coordinator_;
  const std::optional<TimePoint> deadline_;
  const uint32_t default_max_tokens_;
  const bool charge_prompt_;
  AdmissionTimes times_;  // Whoever has the request in hand.
  GenerationReceiver* const receiver_;
  std::shared_ptr<SharedPrompt> prompt_;  // Until Run.
  // Until its end: whoever asks again when it is told the end finds its limits free.
  std::shared_ptr<KeyUse> use_;
  std::atomic<bool> cancelled_ = false;
  std::string key_;  // Before it is submitted, then const.
  // From Submit until its end: a late cancel must not end another session of the same id. On the
  // event loop.
  bool live_ = false;
};

}  // namespace strata

#endif  // STRATA_COORDINATOR_SERVICE_PROCESS_GENERATION_H_
