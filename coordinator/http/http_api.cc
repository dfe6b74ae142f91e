#include "coordinator/http/http_api.h"

#include <algorithm>
#include <ctime>
#include <set>
#include <thread>
#include <utility>

#include "common/app/log.h"
#include "common/limits.h"
#include "common/status.h"
#include "common/units.h"
#include "coordinator/http/json_body.h"
#include "coordinator/metrics/metrics.h"

namespace strata {
namespace {

constexpr std::string_view kModelPath = "/v1/models/";
constexpr size_t kScrapesWaiting = 8;

size_t Threads() { return std::clamp<size_t>(std::thread::hardware_concurrency(), 4, 16); }

ErrorShape ShapeOf(std::string_view path) {
  return path.substr(0, 4) == "/v1/" ? ErrorShape::kOpenAi : ErrorShape::kLorax;
}

void Refuse(int status, ErrorShape shape, const std::string& message, std::string allow,
            HttpResponder* responder) {
  const absl::Status error = Error(absl::StatusCode::kNotFound, "NO_ROUTE", message)
                                 .Hint("docs/API.md lists what is served");
  HttpResponse response = ErrorAnswer(error, shape);
  response.status = status;
  if (!allow.empty()) response.headers.emplace_back("Allow", std::move(allow));
  responder->Answer(std::move(response));
}

bool IsLoaded(const v1::Model& model) { return model.has_plan(); }

uint64_t LongestRequest(const v1::Model& model) {
  uint64_t longest = model.options().context();
  if (model.plan().pipelines_size() > 0) {
    longest = std::min(longest, model.plan().pipelines(0).kv_tokens());
  }
  return longest;
}

}  // namespace

const HttpApi::Route HttpApi::kRoutes[] = {
    {"POST", "/v1/completions", ErrorShape::kOpenAi, &HttpApi::Completions},
    {"POST", "/v1/chat/completions", ErrorShape::kOpenAi, &HttpApi::ChatCompletions},
    {"GET", "/v1/models", ErrorShape::kOpenAi, &HttpApi::ListModels},
    {"GET", kModelPath, ErrorShape::kOpenAi, &HttpApi::ListModels},
    {"GET", "/metrics", ErrorShape::kLorax, &HttpApi::GetMetrics, true},
    {"POST", "/tokenize", ErrorShape::kLorax, &HttpApi::Tokenize},
    {"POST", "/detokenize", ErrorShape::kLorax, &HttpApi::Detokenize},
    {"GET", "/tokenizer_info", ErrorShape::kLorax, &HttpApi::TokenizerInfo},
    {"POST", "/", ErrorShape::kLorax, &HttpApi::LoraxRoot},
    {"POST", "/generate", ErrorShape::kLorax, &HttpApi::LoraxGenerate},
    {"POST", "/generate_stream", ErrorShape::kLorax, &HttpApi::LoraxGenerateStream},
    {"GET", "/info", ErrorShape::kLorax, &HttpApi::LoraxInfo},
};

HttpApi::HttpApi(HttpBackend* backend, HttpApiOptions options)
    : backend_(backend),
      options_(std::move(options)),
      started_unix_seconds_(std::time(nullptr)),
      scrape_thread_({.threads = 1,
                      .waiting = kScrapesWaiting,
                      .name = "scrapes",
                      .hint = "scrape less often"}),
      threads_(
          {.threads = Threads(),
           .waiting = options_.max_waiting_calls,
           .name = "waiting_calls",
           .hint = "try again in a moment, or raise --max-waiting-calls of strata-coordinator"}) {}

bool HttpApi::ServeHealth(const HttpRequest& request, HttpResponder* responder) const {
  if (request.path != "/health" && request.path != "/livez") {
    return false;
  }
  if (request.method != "GET" && request.method != "HEAD") {
    Refuse(405, ErrorShape::kLorax, "only GET is served here", "GET, HEAD", responder);
  } else if (request.path == "/livez") {
    responder->Answer({200, "application/json", R"({"status":"alive"})", {}});
  } else if (backend_->Healthy()) {
    responder->Answer({200, "application/json", R"({"status":"ok"})", {}});
  } else {
    responder->Answer(
        {503, "application/json", R"({"status":"no model is ready; see `strata status`"})", {}});
  }
  return true;
}

void HttpApi::Serve(HttpRequest request, std::shared_ptr<HttpResponder> responder) {
  if (ServeHealth(request, responder.get())) {
    return;
  }
  const Route* found = nullptr;
  for (const Route& route : kRoutes) {
    if (request.path == route.path ||
        (route.path == kModelPath && request.path.substr(0, kModelPath.size()) == kModelPath)) {
      found = &route;
    }
  }
  if (found == nullptr) {
    Refuse(404, ShapeOf(request.path), "there is no route " + request.path, "", responder.get());
    return;
  }
  if (request.method != found->method) {
    Refuse(405, found->shape, "only " + std::string(found->method) + " is served here",
           std::string(found->method), responder.get());
    return;
  }
  const TimePoint arrived = backend_->Now();
  const std::string* authorization = request.Header("authorization");
  auto caller = backend_->Authenticate(authorization == nullptr ? "" : *authorization);
  if (!caller.ok()) {
    responder->Answer(ErrorAnswer(caller.status(), found->shape));
    return;
  }
  auto call = std::make_shared<Call>(
      Call{std::move(request), std::move(responder), {.arrived = arrived}, *std::move(caller)});
  auto serve = [this, found, call] {
    call->times.taken = backend_->Now();
    if (const absl::Status status = (this->*found->serve)(call.get()); !status.ok()) {
      const std::string* id = call->request.Header("x-strata-request-id");
      LogDebug({{"request_id", id == nullptr ? "" : id->substr(0, kMaxRequestIdBytes)},
                {"path", call->request.path},
                {"reason", ReasonOf(status)}},
               "an HTTP request was refused");
      call->responder->Answer(ErrorAnswer(status, found->shape));
    }
  };
  CallThreads& threads = found->scrape ? scrape_thread_ : threads_;
  const absl::Status taken = options_.run == nullptr ? threads.Run(serve) : options_.run(serve);
  if (!taken.ok()) {
    call->responder->Answer(ErrorAnswer(taken, found->shape));
  }
}

absl::StatusOr<HttpApi::CallOptions> HttpApi::OptionsOf(const Call& call) const {
  CallOptions options;
  if (const std::string* id = call.request.Header("x-strata-request-id")) {
    RETURN_IF_ERROR(CheckRequestId(*id));
    options.request_id = *id;
  } else {
    options.request_id = backend_->DrawRequestId();
  }
  if (const std::string* deadline = call.request.Header("x-strata-deadline")) {
    const auto duration = ParseDuration(*deadline);
    if (!duration.ok() || duration->count() <= 0) {
      return BadField("X-Strata-Deadline", "a duration like 30s or 500ms");
    }
    options.deadline = call.times.arrived + *duration;
  }
  return options;
}

absl::StatusOr<std::shared_ptr<const ModelRuntime>> HttpApi::ModelOf(const std::string& model) {
  if (!model.empty()) {
    return backend_->GetRuntime(model);
  }
  ASSIGN_OR_RETURN(const auto models, backend_->ListModels());
  std::string only;
  for (const v1::Model& loaded : models) {
    if (!IsLoaded(loaded)) {
      continue;
    }
    if (!only.empty()) {
      return BadField("model", "given, since several are loaded");
    }
    only = loaded.name();
  }
  if (only.empty()) {
    return Error(absl::StatusCode::kUnavailable, "NO_MODEL", "no model is loaded")
        .Hint("load one with `strata model load`");
  }
  return backend_->GetRuntime(only);
}

absl::StatusOr<uint64_t> HttpApi::MaxTokensOf(const std::string& model) {
  ASSIGN_OR_RETURN(const v1::Model described, backend_->GetModel(model));
  return IsLoaded(described) ? LongestRequest(described) : 0;
}

absl::Status HttpApi::ListModels(Call* call) {
  ASSIGN_OR_RETURN(const auto models, backend_->ListModels());
  const std::string& path = call->request.path;
  const bool one = path.substr(0, kModelPath.size()) == kModelPath;
  const std::string wanted = one ? path.substr(kModelPath.size()) : "";
  OrderedJson list = OrderedJson::array();
  for (const v1::Model& model : models) {
    if (!IsLoaded(model) || (one && model.name() != wanted)) {
      continue;
    }
    list.push_back({{"id", model.name()},
                    {"object", "model"},
                    {"created", started_unix_seconds_},
                    {"owned_by", "strata"},
                    {"root", model.name()},
                    {"parent", nullptr},
                    {"max_model_len", LongestRequest(model)},
                    {"state", model.state()}});
  }
  if (one && list.empty()) {
    return Error(absl::StatusCode::kNotFound, "MODEL_NOT_FOUND", "no model of this name is loaded")
        .Hint("GET /v1/models lists those that are");
  }
  HttpResponse response;
  response.body = Dump(one ? list.front() : OrderedJson{{"object", "list"}, {"data", list}});
  call->responder->Answer(std::move(response));
  return absl::OkStatus();
}

absl::Status HttpApi::GetMetrics(Call* call) {
  ASSIGN_OR_RETURN(std::string text, backend_->MetricsText());
  call->responder->Answer({200, kMetricsContentType, std::move(text), {}});
  return absl::OkStatus();
}

}  // namespace strata
