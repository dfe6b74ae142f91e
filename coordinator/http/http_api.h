// The routes of docs/API.md.
#ifndef STRATA_COORDINATOR_HTTP_HTTP_API_H_
#define STRATA_COORDINATOR_HTTP_HTTP_API_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "common/clock.h"
#include "common/rpc/call_threads.h"
#include "common/rpc/fair_calls.h"
#include "coordinator/http/generation_run.h"
#include "coordinator/http/http_backend.h"
#include "coordinator/http/http_errors.h"
#include "coordinator/http/http_server.h"
#include "coordinator/http/lorax_request.h"
#include "coordinator/http/openai_request.h"
#include "coordinator/http/web_origins.h"

namespace strata {

struct HttpApiOptions {
  // Requests that may wait for a thread to read their bodies and tokenize their texts; one more is
  // refused.
  size_t max_waiting_calls = 4096;
  // On which that is done; null: on threads of the API's own.
  std::shared_ptr<FairCalls> texts = nullptr;
  uint64_t max_answer_bytes = RunOptions().max_answer_bytes;
  std::shared_ptr<HttpMemory> memory = nullptr;  // As RunOptions.
  // Whose web pages may use it.
  WebOriginOptions web = {};
  // Runs a call, now or later, or says why not. Null: on threads of the API's own.
  std::function<absl::Status(std::function<void()> call)> run = nullptr;
};

// Any thread. Bodies are read on threads of its own; a request that is being answered holds none.
class HttpApi {
 public:
  // `backend` outlives it.
  HttpApi(HttpBackend* backend, HttpApiOptions options);
  ~HttpApi() { texts_->Stop(); }

  // HttpOptions::check_head: refuses what has no key, or, where none is needed, what a foreign web
  // page sends, before its body is read.
  std::optional<HttpResponse> CheckHead(const HttpRequest& head) const;
  // HttpOptions::owner_of: the id of its API key, or "".
  std::string OwnerOf(const HttpRequest& head) const;
  // HttpServer's handler.
  void Serve(HttpRequest request, std::shared_ptr<HttpResponder> responder);

 private:
  // A request on a thread that may wait.
  struct Call {
    HttpRequest request;
    std::string request_id;  // The header's, or drawn; "": not of a completion.
    std::shared_ptr<HttpResponder> responder;
    AdmissionTimes times;
    std::shared_ptr<Caller> caller;  // Null: no key is needed.
  };
  struct Route {
    std::string_view method;
    std::string_view path;
    ErrorShape shape;
    absl::Status (HttpApi::*serve)(Call* call);
    enum Kind { kQuick, kCompletion, kScrape } kind = kQuick;
  };
  static const Route kRoutes[];

  static const Route* RouteOf(const std::string& path);
  // What `route` serves, for Allow.
  static std::string MethodsOf(const Route* route);
  // Answers a browser that asks what its page may send.
  void ServePreflight(const HttpRequest& request, HttpResponder* responder) const;
  // Answers the call with why it is refused.
  static void RefuseCall(const absl::Status& why, const Route& route, Call* call);
  // Answers /health and /livez; false for another path.
  bool ServeHealth(const HttpRequest& request, HttpResponder* responder) const;

  // Each answers, or returns why not.
  absl::Status Completions(Call* call);
  absl::Status ChatCompletions(Call* call);
  absl::Status ServeOpenAi(Call* call, OpenAiRequest request);
  absl::Status ListModels(Call* call);
  absl::Status GetMetrics(Call* call);
  absl::Status Tokenize(Call* call);
  absl::Status Detokenize(Call* call);
  absl::Status TokenizerInfo(Call* call);
  absl::Status LoraxRoot(Call* call);
  absl::Status LoraxGenerate(Call* call);
  absl::Status LoraxGenerateStream(Call* call);
  absl::Status LoraxInfo(Call* call);
  absl::Status ServeLorax(Call* call, LoraxRequest request, bool stream, bool in_array);

  // What the headers of Strata's own say of a completion with `choices` choices.
  struct CallOptions {
    std::optional<TimePoint> deadline;
    int32_t priority = 0;
    bool guaranteed = false;
    bool replace = false;
  };
  absl::StatusOr<CallOptions> OptionsOf(const Call& call, size_t choices) const;
  // As strata::CheckMayRun: for routes that tokenize before RunChoices, which looks at it too.
  absl::Status CheckMayRun(const Call& call, const CallOptions& options) const;
  // Has `choices` run as `options` say, and the call answered with what they make.
  void RunChoices(Call* call, const CallOptions& options, uint32_t default_max_tokens,
                  std::vector<ChoiceRequest> choices, std::unique_ptr<HttpAnswer> answer);
  absl::StatusOr<std::shared_ptr<Caller>> Authenticate(const HttpRequest& head) const;
  // The runtime of `model`; where that is "", or "dummy" and no model's name, of the one that is
  // loaded.
  absl::StatusOr<std::shared_ptr<const ModelRuntime>> ModelOf(const std::string& model);
  // Tokens of its longest request; 0: it is not loaded.
  absl::StatusOr<uint64_t> MaxTokensOf(const std::string& model);

  HttpBackend* const backend_;
  const HttpApiOptions options_;
  const WebOrigins web_;
  const int64_t started_unix_seconds_;
  // Last: what they run uses the others. A scrape has a thread of its own, so that it does not wait
  // for texts, nor they for it; and what was computed does not wait for what is not yet.
  CallThreads scrape_thread_;
  const std::shared_ptr<CallThreads> answer_threads_;
  const std::shared_ptr<FairCalls> texts_;
};

}  // namespace strata

#endif  // STRATA_COORDINATOR_HTTP_HTTP_API_H_
