// What clients call: completions, tokenizing.
#ifndef STRATA_COORDINATOR_SERVICE_CALLS_INFERENCE_SERVICE_H_
#define STRATA_COORDINATOR_SERVICE_CALLS_INFERENCE_SERVICE_H_

#include <chrono>
#include <cstddef>
#include <memory>
#include <string_view>

#include "common/rpc/fair_calls.h"
#include "common/rpc/peer_role.h"
#include "common/rpc/transport.h"
#include "coordinator/service/process/coordinator.h"
#include "strata/v1/inference.grpc.pb.h"

namespace strata {

struct InferenceOptions {
  // Bytes of one answer that may wait for a client that does not read; then it is cut off.
  size_t max_unread_bytes = size_t{256} << 20;
  // Likewise a client that takes nothing of its answer for so long. 0: never.
  nanoseconds send_timeout = std::chrono::seconds(120);
  // On which texts are rendered and tokenized; null: on threads of its own, for which so many calls
  // may wait.
  std::shared_ptr<FairCalls> texts = nullptr;
  size_t max_waiting_calls = 4096;
  OnRefusedCall on_refused = {};  // May be empty.
};

// Any thread. A request in flight holds no thread: its answer is written by the thread that
// computed it, which is the server's loop's own for most. Templates and texts, which may take as
// long as they are large, are rendered and tokenized on other threads.
class InferenceServiceImpl final : public IoService {
 public:
  // `coordinator` outlives the service.
  InferenceServiceImpl(Coordinator* coordinator, InferenceOptions options);
  ~InferenceServiceImpl() override { texts_->Stop(); }  // The server has ended.

  grpc::Service* NewService() override;
  void Serve(IoLoop* loop) override;

 private:
  class GenerateCall;

  // Whose the call of that name is, by its certificate and its key.
  absl::StatusOr<std::shared_ptr<Caller>> Authenticate(const grpc::ServerContext& context,
                                                       std::string_view call);
  absl::Status Tokenize(const v1::TokenizeRequest& request, v1::TokenizeResponse* response);
  absl::Status Detokenize(const v1::DetokenizeRequest& request, v1::DetokenizeResponse* response);

  Coordinator* const coordinator_;
  const InferenceOptions options_;
  std::unique_ptr<v1::InferenceService::AsyncService> service_;
  const std::shared_ptr<FairCalls> texts_;
};

}  // namespace strata

#endif  // STRATA_COORDINATOR_SERVICE_CALLS_INFERENCE_SERVICE_H_
