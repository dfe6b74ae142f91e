#include "cli/bench/openai_target.h"

#include <array>
#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

#include "common/status.h"

namespace strata::cli {
namespace {

using nlohmann::json;

constexpr size_t kMaxErrorBytes = 64 << 10;
constexpr size_t kMaxQuotedBytes = 100;
constexpr nanoseconds kProbeTimeout = std::chrono::seconds(120);
constexpr milliseconds kPollEvery{100};

// Words that most vocabularies hold as one token, with the space before.
constexpr std::array kWords = {
    "the",  "of",    "and",   "to",   "in",   "is",   "that", "for",   "it",    "was",  "with",
    "as",   "on",    "be",    "at",   "by",   "this", "are",  "from",  "or",    "have", "an",
    "they", "which", "one",   "you",  "were", "all",  "her",  "she",   "there", "we",   "their",
    "been", "has",   "when",  "who",  "will", "more", "no",   "if",    "out",   "so",   "said",
    "what", "up",    "its",   "into", "than", "them", "can",  "only",  "other", "new",  "some",
    "time", "could", "these", "two",  "may",  "then", "do",   "first", "any"};

uint32_t CountIn(const json& object, const char* key) {
  const auto it = object.find(key);
  return it != object.end() && it->is_number_unsigned() ? it->get<uint32_t>() : 0;
}

// What the server says is wrong: OpenAI's {"error":{"message"}}, a flat {"error"} or the text.
std::string MessageOf(const std::string& body) {
  const json document = json::parse(body, nullptr, /*allow_exceptions=*/false);
  std::string message = body.substr(0, 300);
  if (document.is_object()) {
    const json error = document.value("error", json());
    const json said = error.is_object() ? error.value("message", json()) : error;
    const json flat = document.value("message", json());
    if (said.is_string() || flat.is_string()) {
      message = said.is_string() ? said.get<std::string>() : flat.get<std::string>();
    }
  }
  for (char& c : message) {
    c = c == '\n' || c == '\r' ? ' ' : c;
  }
  return message;
}

absl::StatusCode CodeOf(int http_status) {
  switch (http_status) {
    case 401:
      return absl::StatusCode::kUnauthenticated;
    case 403:
      return absl::StatusCode::kPermissionDenied;
    case 404:
      return absl::StatusCode::kNotFound;
    case 429:
      return absl::StatusCode::kResourceExhausted;
    case 503:
      return absl::StatusCode::kUnavailable;
    default:
      return http_status < 500 ? absl::StatusCode::kInvalidArgument : absl::StatusCode::kInternal;
  }
}

absl::Status HttpError(int http_status, const std::string& body) {
  const std::string number = std::to_string(http_status);
  return Error(CodeOf(http_status), "HTTP_" + number,
               "the server answers " + number + ": " + MessageOf(body));
}

// Whether asking otherwise may help.
bool IsAboutTheRequest(const absl::Status& status) {
  for (const char* reason : {"HTTP_400", "HTTP_415", "HTTP_422", "HTTP_500", "HTTP_501"}) {
    if (ReasonOf(status) == reason) {
      return true;
    }
  }
  return false;
}

// Keeps the one request of a probe.
class ProbeObserver : public LoadObserver {
 public:
  void OnTokens(uint32_t, TimePoint, uint32_t) override {}
  void OnText(uint32_t, std::string_view) override {}
  void OnEnd(uint32_t, TimePoint, const RequestEnd& ended) override { end = ended; }
  std::optional<RequestEnd> end;
};

}  // namespace

std::string CompletionsUrl(std::string url) {
  while (!url.empty() && url.back() == '/') {
    url.pop_back();
  }
  const auto ends_with = [&](std::string_view end) {
    return url.size() >= end.size() && url.compare(url.size() - end.size(), end.size(), end) == 0;
  };
  if (ends_with("/completions")) {
    return url;
  }
  return url + (ends_with("/v1") ? "/completions" : "/v1/completions");
}

std::string TextOf(const std::vector<uint32_t>& ids) {
  std::string text;
  for (const uint32_t id : ids) {
    text += text.empty() ? "" : " ";
    text += kWords[id % kWords.size()];
  }
  return text;
}

absl::StatusOr<std::unique_ptr<OpenAiTarget>> OpenAiTarget::Connect(
    const OpenAiOptions& options, const std::function<bool()>& cancelled) {
  std::vector<std::string> headers = {"Content-Type: application/json",
                                      "Accept: text/event-stream"};
  if (!options.api_key.empty()) {
    headers.push_back("Authorization: Bearer " + options.api_key);
  }
  ASSIGN_OR_RETURN(auto posts,
                   HttpPosts::Make(CompletionsUrl(options.url), headers, options.ca_file));
  std::unique_ptr<OpenAiTarget> target(new OpenAiTarget(std::move(posts), options.model));
  RETURN_IF_ERROR(target->FindDialect(options, cancelled));
  return target;
}

absl::Status OpenAiTarget::FindDialect(const OpenAiOptions& options,
                                       const std::function<bool()>& cancelled) {
  absl::Status first;
  for (const bool extras : {true, false}) {
    for (const bool token_ids : {true, false}) {
      if (token_ids && options.text_only) {
        continue;
      }
      dialect_ = {.token_ids = token_ids, .extras = extras};
      const absl::Status status = Probe(cancelled).status;
      if (status.ok() || !IsAboutTheRequest(status)) {
        return status.ok() ? status
                           : Annotate(status, "one token of " + model_ + " from " + options.url);
      }
      if (first.ok()) {
        first = status;
      }
    }
  }
  return Annotate(first, "one token of " + model_ + " from " + options.url);
}

RequestEnd OpenAiTarget::Probe(const std::function<bool()>& cancelled) {
  const SystemClock clock;
  const TimePoint give_up = clock.Now() + kProbeTimeout;
  ProbeObserver observer;
  Start(0, {.prompt = {1, 2, 3}, .max_tokens = 1});
  bool late = false;
  while (!observer.end.has_value()) {
    Poll(clock.Now() + kPollEvery, &observer);
    late = clock.Now() >= give_up;
    if (late || cancelled()) {
      CancelAll();
    }
  }
  if (late && !observer.end->status.ok()) {
    observer.end->status = Error(absl::StatusCode::kDeadlineExceeded, "NO_ANSWER",
                                 "the server did not answer for 2 minutes");
  }
  return *std::move(observer.end);
}

std::string OpenAiTarget::BodyOf(const WorkloadRequest& what) const {
  json body = {
      {"model", model_}, {"max_tokens", what.max_tokens}, {"temperature", 0}, {"stream", true}};
  if (dialect_.token_ids) {
    body["prompt"] = what.prompt;
  } else {
    body["prompt"] = TextOf(what.prompt);
  }
  if (dialect_.extras) {
    body["stream_options"] = {{"include_usage", true}};
    body["ignore_eos"] = true;
  }
  return body.dump();
}

void OpenAiTarget::Start(uint32_t request, const WorkloadRequest& what) {
  answers_.try_emplace(request);
  posts_->Start(request, BodyOf(what));
}

void OpenAiTarget::Poll(TimePoint until, LoadObserver* observer) {
  observer_ = observer;
  posts_->Poll(until, this);
  observer_ = nullptr;
}

bool OpenAiTarget::OnBody(uint32_t id, int http_status, std::string_view bytes) {
  Answer& answer = answers_.at(id);
  // Of a good answer the begin, in case that it is no stream.
  const size_t keep = http_status == 200 ? kMaxQuotedBytes : kMaxErrorBytes;
  if (answer.begin.size() < keep) {
    answer.begin += bytes.substr(0, keep - answer.begin.size());
  }
  if (http_status != 200) {
    return true;
  }
  const TimePoint now = SystemClock().Now();
  return answer.reader.Feed(bytes,
                            [&](std::string_view data) { TakeData(id, now, data, &answer); });
}

void OpenAiTarget::TakeData(uint32_t request, TimePoint at, std::string_view data, Answer* answer) {
  if (data == "[DONE]") {
    answer->finished = true;
    return;
  }
  const json event = json::parse(data, nullptr, /*allow_exceptions=*/false);
  if (!event.is_object()) {
    answer->end.status =
        Error(absl::StatusCode::kInternal, "BAD_STREAM",
              "the server sent what is no JSON: " + std::string(data.substr(0, kMaxQuotedBytes)));
    return;
  }
  if (event.contains("error") && !event["error"].is_null()) {
    answer->end.status = Error(absl::StatusCode::kInternal, "STREAM_ERROR",
                               "the server broke off: " + MessageOf(std::string(data)));
    return;
  }
  const json usage = event.value("usage", json());
  if (usage.is_object()) {
    answer->end.prompt_tokens = CountIn(usage, "prompt_tokens");
    answer->end.generated_tokens = CountIn(usage, "completion_tokens");
    const json details = usage.value("prompt_tokens_details", json());
    answer->end.cached_tokens = details.is_object() ? CountIn(details, "cached_tokens") : 0;
  }
  const json choices = event.value("choices", json());
  if (!choices.is_array() || choices.empty() || !choices[0].is_object()) {
    return;
  }
  const json finish = choices[0].value("finish_reason", json());
  const json text = choices[0].value("text", json());
  answer->finished |= finish.is_string();
  if (text.is_string()) {
    observer_->OnText(request, text.get_ref<const std::string&>());
  }
  // A token may have no text yet; the message that only says why it ended is none.
  if (!finish.is_string() || (text.is_string() && !text.get_ref<const std::string&>().empty())) {
    observer_->OnTokens(request, at, 1);
  }
}

void OpenAiTarget::OnEnd(uint32_t id, int http_status, const absl::Status& broken) {
  auto own = answers_.extract(id);
  Answer& answer = own.mapped();
  RequestEnd& end = answer.end;
  if (end.status.ok() && http_status != 0 && http_status != 200) {
    end.status = HttpError(http_status, answer.begin);
  }
  if (end.status.ok() && !answer.finished) {
    end.status =
        !broken.ok()
            ? broken
            : Error(absl::StatusCode::kInternal, "ANSWER_INCOMPLETE",
                    "the server ended the stream without saying why, after: " + answer.begin);
  }
  end.refused = http_status == 429;
  observer_->OnEnd(id, SystemClock().Now(), end);
}

}  // namespace strata::cli
