// What clients call: completions, tokenizing.
#ifndef STRATA_COORDINATOR_SERVICE_INFERENCE_SERVICE_H_
#define STRATA_COORDINATOR_SERVICE_INFERENCE_SERVICE_H_

#include "coordinator/service/coordinator.h"
#include "strata/v1/inference.grpc.pb.h"

namespace strata {

struct InferenceOptions {
  // Bytes of one answer that may wait for a client that does not read; then it is cut off.
  size_t max_unread_bytes = size_t{256} << 20;
};

// Callback service: a request in flight holds no thread.
class InferenceServiceImpl final : public v1::InferenceService::CallbackService {
 public:
  InferenceServiceImpl(Coordinator* coordinator, InferenceOptions options)
      : coordinator_(coordinator), options_(options) {}

  grpc::ServerWriteReactor<v1::GenerateResponse>* Generate(
      grpc::CallbackServerContext* context, const v1::GenerateRequest* request) override;
  grpc::ServerUnaryReactor* Tokenize(grpc::CallbackServerContext* context,
                                     const v1::TokenizeRequest* request,
                                     v1::TokenizeResponse* response) override;
  grpc::ServerUnaryReactor* Detokenize(grpc::CallbackServerContext* context,
                                       const v1::DetokenizeRequest* request,
                                       v1::DetokenizeResponse* response) override;

 private:
  absl::Status DoTokenize(const v1::TokenizeRequest& request, v1::TokenizeResponse* response);
  absl::Status DoDetokenize(const v1::DetokenizeRequest& request, v1::DetokenizeResponse* response);

  Coordinator* const coordinator_;
  const InferenceOptions options_;
};

}  // namespace strata

#endif  // STRATA_COORDINATOR_SERVICE_INFERENCE_SERVICE_H_
