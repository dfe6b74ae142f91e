#include <utility>

#include "common/status.h"
#include "sdk/cpp/client_impl.h"
#include "sdk/cpp/convert.h"
#include "sdk/cpp/generate_stream.h"
#include "sdk/cpp/strata.h"

namespace strata::sdk {

std::string Describe(const absl::Status& status) { return strata::Describe(status); }
std::string Reason(const absl::Status& status) { return ReasonOf(status); }

absl::StatusOr<std::unique_ptr<Client>> Client::Connect(const ClientOptions& options) {
  ASSIGN_OR_RETURN(std::shared_ptr<Impl> impl, Impl::Make(options));
  return std::unique_ptr<Client>(new Client(std::move(impl)));
}

Client::Client(std::shared_ptr<Impl> impl) : impl_(std::move(impl)) {}
Client::~Client() = default;
const ClientOptions& Client::options() const { return impl_->options(); }

absl::StatusOr<GenerateStream> Client::Stream(const GenerateRequest& request,
                                              const CallOptions& call) {
  auto impl = std::make_unique<GenerateStream::Impl>(impl_, request, call);
  RETURN_IF_ERROR(impl->Start());
  return GenerateStream(std::move(impl));
}

absl::StatusOr<Generation> Client::Generate(const GenerateRequest& request,
                                            const CallOptions& call) {
  ASSIGN_OR_RETURN(GenerateStream stream, Stream(request, call));
  std::vector<float> logits;
  while (true) {
    ASSIGN_OR_RETURN(std::optional<Piece> piece, stream.Next());
    if (!piece.has_value()) {
      break;
    }
    logits.insert(logits.end(), piece->logits.begin(), piece->logits.end());
  }
  Generation result = stream.result();
  result.logits = std::move(logits);
  return result;
}

absl::StatusOr<TokenizedPrompt> Client::Tokenize(std::string_view model, std::string_view text,
                                                 bool add_special_tokens, const CallOptions& call) {
  v1::TokenizeRequest request;
  request.set_model(std::string(model));
  request.set_text(std::string(text));
  request.set_add_special_tokens(add_special_tokens);
  return impl_->Tokenize(request, call);
}

absl::StatusOr<TokenizedPrompt> Client::TokenizeChat(std::string_view model,
                                                     const std::vector<ChatMessage>& messages,
                                                     const CallOptions& call) {
  v1::TokenizeRequest request;
  request.set_model(std::string(model));
  *request.mutable_chat() = ToWire(messages);
  return impl_->Tokenize(request, call);
}

absl::StatusOr<std::string> Client::Detokenize(std::string_view model,
                                               const std::vector<uint32_t>& ids,
                                               bool skip_special_tokens, const CallOptions& call) {
  v1::DetokenizeRequest request;
  request.set_model(std::string(model));
  request.mutable_ids()->Add(ids.begin(), ids.end());
  request.set_skip_special_tokens(skip_special_tokens);
  ASSIGN_OR_RETURN(v1::DetokenizeResponse response,
                   impl_->Unary<v1::DetokenizeResponse>(call, [&](auto* context, auto* out) {
                     return impl_->inference().Detokenize(context, request, out);
                   }));
  return std::move(*response.mutable_text());
}

absl::StatusOr<TokenizedPrompt> Client::Impl::Tokenize(const v1::TokenizeRequest& request,
                                                       const CallOptions& call) {
  ASSIGN_OR_RETURN(const v1::TokenizeResponse response,
                   Unary<v1::TokenizeResponse>(call, [&](auto* context, auto* out) {
                     return inference_->Tokenize(context, request, out);
                   }));
  TokenizedPrompt prompt;
  prompt.ids.assign(response.ids().begin(), response.ids().end());
  prompt.prompt = response.prompt();
  return prompt;
}

}  // namespace strata::sdk
