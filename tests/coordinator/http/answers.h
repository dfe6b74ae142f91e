// Messages of an answer, as the coordinator sends them.
#ifndef STRATA_TESTS_COORDINATOR_HTTP_ANSWERS_H_
#define STRATA_TESTS_COORDINATOR_HTTP_ANSWERS_H_

#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>

#include "strata/v1/inference.pb.h"
#include "tests/text/tokenizer/small_tokenizer.h"
#include "text/tokenizer/tokenizer.h"

namespace strata::testing {

inline std::shared_ptr<const Tokenizer> MakeSmallTokenizer() {
  return *ParseTokenizer(SmallTokenizer().dump());
}

// Llama 2's kind: ids 0 to 255 are byte tokens, then "a" 256 and "▁a" 257.
inline std::shared_ptr<const Tokenizer> MakeByteFallbackTokenizer() {
  nlohmann::json json = SmallTokenizer();
  nlohmann::json vocab;
  for (int byte = 0; byte < 256; ++byte) {
    char name[8];
    std::snprintf(name, sizeof(name), "<0x%02X>", byte);
    vocab[name] = byte;
  }
  vocab["a"] = 256;
  vocab["\u2581a"] = 257;
  const auto replace = [](const char* from, const char* to) {
    return nlohmann::json{{"type", "Replace"}, {"pattern", {{"String", from}}}, {"content", to}};
  };
  json["model"]["vocab"] = vocab;
  json["model"]["merges"] = nlohmann::json::array();
  json["model"]["byte_fallback"] = true;
  json["normalizer"] = {
      {"type", "Sequence"},
      {"normalizers", {{{"type", "Prepend"}, {"prepend", "\u2581"}}, replace(" ", "\u2581")}}};
  json["pre_tokenizer"] = nullptr;
  json["decoder"] = {{"type", "Sequence"},
                     {"decoders",
                      {replace("\u2581", " "),
                       {{"type", "ByteFallback"}},
                       {{"type", "Fuse"}},
                       {{"type", "Strip"}, {"content", " "}, {"start", 1}, {"stop", 0}}}}};
  return *ParseTokenizer(json.dump());
}

inline v1::GenerateResponse StartedMessage(uint32_t prompt_tokens, uint32_t max_tokens) {
  v1::GenerateResponse message;
  message.set_request_id("r");
  message.mutable_started()->set_seed(7);
  message.mutable_started()->set_numerics_class("cpu-2");
  message.mutable_started()->set_prompt_tokens(prompt_tokens);
  message.mutable_started()->set_max_tokens(max_tokens);
  return message;
}

inline v1::TokenLogprob Logprob(uint32_t id, float logprob) {
  v1::TokenLogprob token;
  token.set_token_id(id);
  token.set_logprob(logprob);
  return token;
}

// A token that says `text`, with its logprob where `logprob` is not 0.
inline v1::GenerateResponse TokenMessage(uint32_t id, const std::string& text, float logprob = 0) {
  v1::GenerateResponse message;
  message.add_token_ids(id);
  message.set_text(text);
  if (logprob != 0) *message.add_logprobs() = Logprob(id, logprob);
  return message;
}

inline v1::GenerateResponse FinishMessage(const std::string& reason, uint32_t prompt_tokens,
                                          uint32_t completion_tokens, uint32_t cached_tokens = 0) {
  v1::GenerateResponse message;
  message.mutable_finish()->set_reason(reason);
  message.mutable_finish()->set_prompt_tokens(prompt_tokens);
  message.mutable_finish()->set_completion_tokens(completion_tokens);
  message.mutable_finish()->set_cached_tokens(cached_tokens);
  return message;
}

}  // namespace strata::testing

#endif  // STRATA_TESTS_COORDINATOR_HTTP_ANSWERS_H_
