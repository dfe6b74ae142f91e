#include "coordinator/http/http_api.h"

#include <algorithm>
#include <ctime>
#include <limits>
#include <set>
#include <utility>

#include "absl/strings/numbers.h"
#include "common/app/log.h"
#include "common/check.h"
#include "common/limits.h"
#include "common/plan.h"
#include "common/status.h"
#include "common/units.h"
#include "coordinator/http/json_body.h"
#include "coordinator/metrics/metrics.h"
#include "coordinator/service/request/text_threads.h"

namespace strata {
namespace {

// What clients call a model that they do not know the name of.
constexpr std::string_view kAnyModel = "dummy";

constexpr std::string_view kModelPath = "/v1/models/";
constexpr std::string_view kRequestIdHeader = "X-Strata-Request-Id";
constexpr std::string_view kDeadlineHeader = "X-Strata-Deadline";
constexpr std::string_view kPriorityHeader = "X-Strata-Priority";
constexpr std::string_view kGuaranteedHeader = "X-Strata-Guaranteed";
constexpr std::string_view kReplaceHeader = "X-Strata-Replace";
constexpr size_t kScrapesWaiting = 8;
// Whole answers that are made at once; as many wait as there are connections.
constexpr size_t kAnswerThreads = 4;

ErrorShape ShapeOf(std::string_view path) {
  return path.substr(0, 4) == "/v1/" ? ErrorShape::kOpenAi : ErrorShape::kLorax;
}

constexpr const char* kSeeDocs = "docs/API.md lists what is served";

// What to do instead of asking for a route that is not there.
const char* HintOf(std::string_view path) {
  for (const std::string_view other : {"/v1/responses", "/v1/messages"}) {
    if (path.substr(0, other.size()) == other) {
      return "tell the client to use /v1/chat/completions (docs/API.md, Clients, says how)";
    }
  }
  return kSeeDocs;
}

void Refuse(int status, ErrorShape shape, const std::string& message, std::string allow,
            HttpResponder* responder, const char* hint = kSeeDocs) {
  const bool method = status == 405;
  const absl::Status error =
      Error(method ? absl::StatusCode::kInvalidArgument : absl::StatusCode::kNotFound,
            method ? "METHOD_NOT_ALLOWED" : "NO_ROUTE", message)
          .Hint(hint);
  HttpResponse response = ErrorAnswer(error, shape);
  response.status = status;
  if (!allow.empty()) response.headers.emplace_back("Allow", std::move(allow));
  responder->Answer(std::move(response));
}

absl::StatusOr<bool> FlagOf(const HttpRequest& request, std::string_view name) {
  const std::string* value = request.Header(name);
  if (value == nullptr || *value == "false") {
    return false;
  }
  if (*value != "true") {
    return BadField(name, "true or false");
  }
  return true;
}

bool IsLoaded(const v1::Model& model) { return model.has_plan(); }

uint64_t LongestRequest(const v1::Model& model) {
  uint64_t longest = model.options().context();
  if (const v1::PlanPipeline* pipeline = FindPipeline(model.plan())) {
    longest = std::min(longest, pipeline->kv_tokens());
  }
  return longest;
}

}  // namespace

const HttpApi::Route HttpApi::kRoutes[] = {
    {"POST", "/v1/completions", ErrorShape::kOpenAi, &HttpApi::Completions, Route::kCompletion},
    {"POST", "/v1/chat/completions", ErrorShape::kOpenAi, &HttpApi::ChatCompletions,
     Route::kCompletion},
    {"GET", "/v1/models", ErrorShape::kOpenAi, &HttpApi::ListModels},
    {"GET", kModelPath, ErrorShape::kOpenAi, &HttpApi::ListModels},
    {"GET", "/metrics", ErrorShape::kLorax, &HttpApi::GetMetrics, Route::kScrape},
    {"POST", "/tokenize", ErrorShape::kLorax, &HttpApi::Tokenize},
    {"POST", "/detokenize", ErrorShape::kLorax, &HttpApi::Detokenize},
    {"GET", "/tokenizer_info", ErrorShape::kLorax, &HttpApi::TokenizerInfo},
    {"POST", "/", ErrorShape::kLorax, &HttpApi::LoraxRoot, Route::kCompletion},
    {"POST", "/generate", ErrorShape::kLorax, &HttpApi::LoraxGenerate, Route::kCompletion},
    {"POST", "/generate_stream", ErrorShape::kLorax, &HttpApi::LoraxGenerateStream,
     Route::kCompletion},
    {"GET", "/info", ErrorShape::kLorax, &HttpApi::LoraxInfo},
};

HttpApi::HttpApi(HttpBackend* backend, HttpApiOptions options)
    : backend_(backend),
      options_(std::move(options)),
      web_(options_.web),
      started_unix_seconds_(std::time(nullptr)),
      scrape_thread_({.threads = 1,
                      .waiting = kScrapesWaiting,
                      .name = "scrapes",
                      .hint = "scrape less often"}),
      answer_threads_(std::make_shared<CallThreads>(
          CallThreadsOptions{.threads = kAnswerThreads,
                             .waiting = std::numeric_limits<size_t>::max() - kAnswerThreads,
                             .name = "answers"})),
      texts_(options_.texts != nullptr ? options_.texts
                                       : NewTextThreads(options_.max_waiting_calls)) {}

bool HttpApi::ServeHealth(const HttpRequest& request, HttpResponder* responder) const {
  if (request.path != "/health" && request.path != "/livez") {
    return false;
  }
  if (request.method != "GET" && request.method != "HEAD") {
    Refuse(405, ErrorShape::kLorax, "only GET, HEAD is served here", MethodsOf(nullptr), responder);
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

const HttpApi::Route* HttpApi::RouteOf(const std::string& path) {
  for (const Route& route : kRoutes) {
    if (path == route.path ||
        (route.path == kModelPath && path.substr(0, kModelPath.size()) == kModelPath)) {
      return &route;
    }
  }
  return nullptr;
}

std::string HttpApi::MethodsOf(const Route* route) {
  const bool gets = route == nullptr || route->method == "GET";  // None: of health.
  return gets ? "GET, HEAD" : std::string(route->method);
}

std::optional<HttpResponse> HttpApi::CheckHead(const HttpRequest& head) const {
  const bool needs_key = !backend_->Authenticate("").ok();
  absl::Status why = needs_key ? absl::OkStatus() : web_.Check(head);
  const Route* route = RouteOf(head.path);
  // Of others Serve says that they are none. A browser asks without a key.
  if (why.ok() && route != nullptr && needs_key && !WebOrigins::IsPreflight(head)) {
    why = Authenticate(head).status();
  }
  if (why.ok()) {
    return std::nullopt;
  }
  HttpResponse refusal = ErrorAnswer(why, ShapeOf(head.path));
  const HttpHeaders more = web_.AnswerHeaders(head);
  refusal.headers.insert(refusal.headers.end(), more.begin(), more.end());
  return refusal;
}

std::string HttpApi::OwnerOf(const HttpRequest& head) const {
  const auto caller = Authenticate(head);
  return caller.ok() ? KeyOf(caller->get()) : "";
}

void HttpApi::ServePreflight(const HttpRequest& request, HttpResponder* responder) const {
  const auto answer = web_.Preflight(request, MethodsOf(RouteOf(request.path)));
  responder->Answer(answer.ok() ? *answer : ErrorAnswer(answer.status(), ShapeOf(request.path)));
}

absl::StatusOr<std::shared_ptr<Caller>> HttpApi::Authenticate(const HttpRequest& head) const {
  const std::string* authorization = head.Header("authorization");
  return backend_->Authenticate(authorization == nullptr ? "" : *authorization);
}

void HttpApi::RefuseCall(const absl::Status& why, const Route& route, Call* call) {
  LogDebug(
      {{"request_id", call->request_id}, {"path", call->request.path}, {"reason", ReasonOf(why)}},
      "an HTTP request was refused");
  HttpResponse refusal = ErrorAnswer(why, route.shape);
  if (!call->request_id.empty()) {
    refusal.headers.emplace_back(kRequestIdHeader, call->request_id);
  }
  call->responder->Answer(std::move(refusal));
}

void HttpApi::Serve(HttpRequest request, std::shared_ptr<HttpResponder> responder) {
  if (WebOrigins::IsPreflight(request)) {
    ServePreflight(request, responder.get());
    return;
  }
  if (HttpHeaders headers = web_.AnswerHeaders(request); !headers.empty()) {
    responder = WithHeaders(std::move(responder), std::move(headers));
  }
  if (ServeHealth(request, responder.get())) {
    return;
  }
  const Route* route = RouteOf(request.path);
  if (route == nullptr) {
    Refuse(404, ShapeOf(request.path), "there is no route " + request.path, "", responder.get(),
           HintOf(request.path));
    return;
  }
  const bool head_of_get = request.method == "HEAD" && route->method == "GET";
  if (request.method != route->method && !head_of_get) {
    Refuse(405, route->shape, "only " + MethodsOf(route) + " is served here", MethodsOf(route),
           responder.get());
    return;
  }
  const TimePoint arrived = backend_->Now();
  auto call = std::make_shared<Call>();
  call->times.arrived = arrived;
  call->responder = std::move(responder);
  if (route->kind == Route::kCompletion) {
    const std::string* id = request.Header(kRequestIdHeader);
    call->request_id = id != nullptr && CheckRequestId(*id).ok() ? *id : backend_->DrawRequestId();
  }
  auto caller = Authenticate(request);
  call->request = std::move(request);
  if (!caller.ok()) {
    RefuseCall(caller.status(), *route, call.get());
    return;
  }
  call->caller = *std::move(caller);
  auto serve = [this, route, call] {
    call->times.taken = backend_->Now();
    if (const absl::Status status = (this->*route->serve)(call.get()); !status.ok()) {
      RefuseCall(status, *route, call.get());
    }
  };
  const absl::Status taken =
      options_.run != nullptr ? options_.run(serve)
      : route->kind == Route::kScrape
          ? scrape_thread_.Run(serve)
          : texts_->Run(KeyOf(call->caller.get()), call->request.body.size(), serve);
  if (!taken.ok()) {
    RefuseCall(taken, *route, call.get());
  }
}

absl::StatusOr<HttpApi::CallOptions> HttpApi::OptionsOf(const Call& call, size_t choices) const {
  CallOptions options;
  if (const std::string* id = call.request.Header(kRequestIdHeader)) {
    RETURN_IF_ERROR(CheckRequestId(*id));
    // The last choice has the longest name.
    if (choices > 1 && id->size() + 1 + std::to_string(choices - 1).size() > kMaxRequestIdBytes) {
      return BadField(kRequestIdHeader,
                      "shorter where there are several choices: each is named "
                      "ID#NUMBER, of at most " +
                          std::to_string(kMaxRequestIdBytes) + " characters");
    }
  }
  if (const std::string* deadline = call.request.Header(kDeadlineHeader)) {
    const auto duration = ParseDuration(*deadline);
    if (!duration.ok() || duration->count() <= 0) {
      return BadField(kDeadlineHeader, "a duration like 30s or 500ms");
    }
    options.deadline = call.times.arrived + *duration;
  }
  if (const std::string* priority = call.request.Header(kPriorityHeader)) {
    if (!absl::SimpleAtoi({priority->data(), priority->size()}, &options.priority)) {
      return BadField(kPriorityHeader, "a whole number");
    }
  }
  ASSIGN_OR_RETURN(options.guaranteed, FlagOf(call.request, kGuaranteedHeader));
  ASSIGN_OR_RETURN(options.replace, FlagOf(call.request, kReplaceHeader));
  return options;
}

absl::Status HttpApi::CheckMayRun(const Call& call, const CallOptions& options) const {
  v1::GenerateRequest request;
  request.set_request_id(call.request_id);
  request.set_priority(options.priority);
  request.set_guaranteed(options.guaranteed);
  request.set_replace(options.replace);
  KeyUse use(call.caller);
  return strata::CheckMayRun(request, options.deadline, &use, backend_->Now());
}

void HttpApi::RunChoices(Call* call, const CallOptions& options, uint32_t default_max_tokens,
                         std::vector<ChoiceRequest> choices, std::unique_ptr<HttpAnswer> answer) {
  for (ChoiceRequest& choice : choices) {
    choice.request.set_priority(options.priority);
    choice.request.set_guaranteed(options.guaranteed);
    choice.request.set_replace(options.replace);
  }
  RunOptions run;
  run.deadline = options.deadline;
  run.default_max_tokens = default_max_tokens;
  run.caller = call->caller;
  run.headers = {{std::string(kRequestIdHeader), call->request_id}};
  run.max_answer_bytes = options_.max_answer_bytes;
  run.memory = options_.memory;
  run.times = call->times;
  // An engine may end requests after the API is gone.
  run.elsewhere = [threads = std::weak_ptr<CallThreads>(answer_threads_),
                   given = options_.run](std::function<void()> task) {
    const auto live = threads.lock();
    if (given != nullptr || live == nullptr) {
      task();
    } else {
      STRATA_CHECK(live->Run(std::move(task)).ok());
    }
  };
  RunGenerations(backend_, std::move(choices), std::move(run), std::move(answer), call->responder);
}

absl::StatusOr<std::shared_ptr<const ModelRuntime>> HttpApi::ModelOf(const std::string& model) {
  if (!model.empty()) {
    auto runtime = backend_->GetRuntime(model);
    if (runtime.ok() || model != kAnyModel) {
      return runtime;
    }
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
        .Hint("load one with `strata model load NAME`");
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
