// A load on any server that speaks OpenAI's completions API.
#ifndef STRATA_CLI_BENCH_OPENAI_TARGET_H_
#define STRATA_CLI_BENCH_OPENAI_TARGET_H_

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "cli/bench/http_posts.h"
#include "cli/bench/sse_reader.h"
#include "cli/bench/target.h"

namespace strata::cli {

struct OpenAiOptions {
  // http://HOST:PORT, with or without /v1 or /v1/completions.
  std::string url;
  std::string model;
  std::string api_key;     // Sent as a bearer token when not empty.
  std::string ca_file{};   // As HttpPosts::Make.
  bool text_only = false;  // Prompts of words, not of token ids.
};

// How requests are written: what a server does not take is left out.
struct OpenAiDialect {
  bool token_ids = true;  // Else a text of as many words, each about a token.
  // stream_options.include_usage and ignore_eos, which not all servers know.
  bool extras = true;
};

// Answers are greedy; they go on to their full length where the server has ignore_eos. A message
// counts as one token unless the server's usage says how many there were in all.
class OpenAiTarget : public LoadTarget, private HttpPostObserver {
 public:
  // Asks for one token to find out how the server wants to be asked; that it answers well is a
  // condition. Errors name the server's. `cancelled` is asked ten times a second.
  static absl::StatusOr<std::unique_ptr<OpenAiTarget>> Connect(
      const OpenAiOptions& options, const std::function<bool()>& cancelled);

  void Start(uint32_t request, const WorkloadRequest& what) override;
  void Poll(TimePoint until, LoadObserver* observer) override;
  void CancelAll() override { posts_->CancelAll(); }
  const OpenAiDialect& dialect() const { return dialect_; }

 private:
  struct Answer {
    SseReader reader;
    std::string begin;      // Of the body, for messages.
    bool finished = false;  // [DONE] or a finish_reason came.
    RequestEnd end;
  };
  OpenAiTarget(std::unique_ptr<HttpPosts> posts, std::string model)
      : posts_(std::move(posts)), model_(std::move(model)) {}

  absl::Status FindDialect(const OpenAiOptions& options, const std::function<bool()>& cancelled);
  RequestEnd Probe(const std::function<bool()>& cancelled);
  std::string BodyOf(const WorkloadRequest& what) const;
  void TakeData(uint32_t request, TimePoint at, std::string_view data, Answer* answer);
  bool OnBody(uint32_t id, int http_status, std::string_view bytes) override;
  void OnEnd(uint32_t id, int http_status, const absl::Status& broken) override;

  const std::unique_ptr<HttpPosts> posts_;
  const std::string model_;
  OpenAiDialect dialect_;
  std::map<uint32_t, Answer> answers_;
  LoadObserver* observer_ = nullptr;  // During Poll.
};

// The address that completions are posted to.
std::string CompletionsUrl(std::string url);
// A text of `ids.size()` words, the same for the same ids.
std::string TextOf(const std::vector<uint32_t>& ids);

}  // namespace strata::cli

#endif  // STRATA_CLI_BENCH_OPENAI_TARGET_H_
