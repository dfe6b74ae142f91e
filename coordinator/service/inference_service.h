// What clients call: completions, tokenizing.
#ifndef STRATA_COORDINATOR_SERVICE_INFERENCE_SERVICE_H_
#define STRATA_COORDINATOR_SERVICE_INFERENCE_SERVICE_H_

#include "coordinator/service/coordinator.h"
#include "strata/v1/inference.grpc.pb.h"

namespace strata {

// Callback service: a request in flight holds no thread.
class InferenceServiceImpl final : public v1::InferenceService::CallbackService {
 public:
  explicit InferenceServiceImpl(Coordinator* coordinator) : coordinator_(coordinator) {}

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
};

}  // namespace strata

#endif  // STRATA_COORDINATOR_SERVICE_INFERENCE_SERVICE_H_
