// An answer to a chat over HTTP: three bytes choose its formats and how it is cut, the rest is what
// the model writes. What a stream's chunks say together is what the whole answer says.
#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <vector>

#include "common/check.h"
#include "coordinator/http/openai_answer.h"
#include "coordinator/service/request/chat_answer.h"
#include "tests/coordinator/http/answers.h"
#include "tests/fuzz/input.h"
#include "tests/text/tools/reading.h"
#include "text/tools/offered_tools.h"
#include "text/unicode/utf8.h"

namespace strata {
namespace {

using Json = nlohmann::json;

// So that a run is short.
constexpr size_t kMaxAnswerBytes = 1024;

// The markup of all formats.
const std::vector<std::string_view>& Markup() {
  static const auto& markup = *new std::vector<std::string_view>([] {
    std::set<std::string_view> texts;
    for (const ToolFormat& row : ToolFormats()) {
      texts.insert(row.tokens.begin(), row.tokens.end());
    }
    for (const ThoughtFormat& row : ThoughtFormats()) {
      if (row.tokens.empty()) texts.insert({row.open, row.close});
      texts.insert(row.tokens.begin(), row.tokens.end());
    }
    texts.erase("");
    return std::vector<std::string_view>(texts.begin(), texts.end());
  }());
  return markup;
}

// `special`: markup is special tokens of its vocabulary.
std::shared_ptr<const ModelRuntime> MakeModel(bool special) {
  Json json = testing::SmallTokenizer();
  for (const std::string_view text : special ? Markup() : std::vector<std::string_view>()) {
    json["added_tokens"].push_back(testing::Added(
        std::string(text), {{"id", json["model"]["vocab"].size() + json["added_tokens"].size()}}));
  }
  auto manifest = std::make_shared<ModelManifest>();
  manifest->chat_template = "{{ tools }}";
  auto model = std::make_shared<ModelRuntime>();
  model->name = "m";
  auto tokenizer = ParseTokenizer(json.dump());
  STRATA_CHECK(tokenizer.ok());
  model->tokenizer = *std::move(tokenizer);
  model->manifest = std::move(manifest);
  return model;
}

std::shared_ptr<const OfferedTools> Offered() {
  static const auto& offered = *new std::shared_ptr<const OfferedTools>(
      OfferedTools::Parse(
          {R"({"type": "function", "function": {"name": "f", "parameters": {"properties": {
               "s": {"type": "string"}, "n": {"type": "integer"}, "o": {"type": "object"}}}}})",
           R"({"type": "function", "function": {"name": "now"}})"})
          .value());
  return offered;
}

std::string WellFormed(const std::string& bytes) {
  std::string text;
  Utf8Assembler assembler;
  assembler.Add(bytes, &text);
  assembler.Finish(&text);
  return text;
}

// Behind so many bytes, and the rest of the character there: a tokenizer's text has no halves.
size_t EndOfPiece(const std::string& text, size_t begin, size_t bytes) {
  size_t end = begin + std::min(bytes, text.size() - begin);
  while (end < text.size() && (text[end] & 0xC0) == 0x80) ++end;
  return end;
}

// The messages of an answer, one for each piece.
std::vector<v1::GenerateResponse> Read(const ModelRuntime& model, const v1::LoadOptions& options,
                                       const ChatAnswer& chat,
                                       const std::vector<testing::Part>& parts, size_t step) {
  auto reader = ChatReader::Make(model, options, chat, "fuzz");
  STRATA_CHECK(reader.ok() && *reader != nullptr);
  std::vector<v1::GenerateResponse> messages = {testing::StartedMessage(1, 9)};
  const auto tell = [&] {
    messages.emplace_back().add_token_ids(1);
    (*reader)->Tell(&messages.back());
  };
  for (const testing::Part& part : parts) {
    if (part.token) {
      (*reader)->AddToken(*model.tokenizer->TokenToId(part.text));
      tell();
      continue;
    }
    for (size_t at = 0, end = 0; at < part.text.size(); at = end) {
      end = EndOfPiece(part.text, at, step);
      (*reader)->Add(part.text.substr(at, end - at));
      tell();
    }
  }
  (*reader)->Finish();
  messages.push_back(
      testing::FinishMessage((*reader)->calls() ? "tool_calls" : "stop", 1, messages.size()));
  (*reader)->Tell(&messages.back());
  return messages;
}

// What chunks say together, as a whole answer's message has it.
class Joined {
 public:
  void Add(const Json& choice) {
    const Json& delta = choice["delta"];
    if (const Json content = delta.value("content", Json()); content.is_string()) {
      content_ =
          (content_.is_null() ? "" : content_.get<std::string>()) + content.get<std::string>();
    }
    STRATA_CHECK(delta.value("tool_calls", Json::array()).size() <= 1);
    thought_ += delta.value("reasoning_content", "");
    for (const Json& piece : delta.value("tool_calls", Json::array())) {
      const size_t index = piece["index"];
      if (piece.contains("id")) {
        STRATA_CHECK(index == calls_.size());
        Json call = piece;
        call.erase("index");
        calls_.push_back(std::move(call));
        continue;
      }
      STRATA_CHECK(index + 1 == calls_.size() && !piece["function"].contains("name"));
      Json& arguments = calls_.back()["function"]["arguments"];
      arguments = arguments.get<std::string>() + piece["function"]["arguments"].get<std::string>();
    }
    reason_ = choice["finish_reason"];
  }

  Json Message() const {
    Json message = {{"role", "assistant"}, {"content", content_}};
    if (!thought_.empty()) message["reasoning_content"] = thought_;
    if (!calls_.empty()) message["tool_calls"] = calls_;
    return message;
  }
  const Json& reason() const { return reason_; }

 private:
  Json content_;
  std::string thought_;
  Json calls_ = Json::array();
  Json reason_;
};

std::unique_ptr<HttpAnswer> MakeAnswer(bool stream) {
  OpenAiRequest request;
  request.chat = true;
  request.model = "m";
  request.prompts.emplace_back();
  request.stream = stream;
  return MakeOpenAiAnswer(request, {.request_id = "x"});
}

Json Whole(const std::vector<v1::GenerateResponse>& messages) {
  const auto answer = MakeAnswer(/*stream=*/false);
  for (const v1::GenerateResponse& message : messages) {
    STRATA_CHECK(answer->OnMessage(0, message).empty());
  }
  return Json::parse(answer->Whole().body)["choices"][0];
}

Joined Streamed(const std::vector<v1::GenerateResponse>& messages) {
  const auto answer = MakeAnswer(/*stream=*/true);
  Joined joined;
  for (const v1::GenerateResponse& message : messages) {
    std::string said = answer->OnMessage(0, message);
    for (size_t end = 0; !said.empty(); said.erase(0, end + 2)) {
      end = said.find("\n\n");
      STRATA_CHECK(said.starts_with("data: ") && end != std::string::npos);
      joined.Add(Json::parse(said.substr(6, end - 6))["choices"][0]);
    }
  }
  return joined;
}

}  // namespace
}  // namespace strata

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace strata;  // NOLINT(google-build-using-namespace)
  static const std::shared_ptr<const ModelRuntime> models[] = {MakeModel(false), MakeModel(true)};
  fuzz::Input input(data, size);
  v1::LoadOptions options;
  options.set_tool_format(
      std::string(ToolFormats()[input.Below(static_cast<uint32_t>(ToolFormats().size()))].name));
  const uint8_t flags = input.Byte();
  const uint32_t thoughts = flags % 16 % (static_cast<uint32_t>(ThoughtFormats().size()) + 1);
  options.set_reasoning_format(thoughts == 0 ? "none"
                                             : std::string(ThoughtFormats()[thoughts - 1].name));
  ChatAnswer chat;
  chat.offered = Offered();
  chat.one_call = (flags & 16) != 0;
  if (thoughts > 0 && (flags & 32) != 0) chat.prompt_end = ThoughtFormats()[thoughts - 1].open;
  const bool special = (flags & 64) != 0;
  const ModelRuntime& model = *models[special ? 1 : 0];
  const size_t step = 1 + input.Byte() % 16;
  const auto parts = testing::PartsOf(WellFormed(input.Bytes(kMaxAnswerBytes)),
                                      special ? Markup() : std::vector<std::string_view>());
  const Json whole = Whole(Read(model, options, chat, parts, SIZE_MAX / 2));
  for (const size_t one : {size_t{1}, step, SIZE_MAX / 2}) {
    const auto messages = Read(model, options, chat, parts, one);
    STRATA_CHECK(Whole(messages) == whole);
    const Joined joined = Streamed(messages);
    STRATA_CHECK(joined.Message() == whole["message"]);
    STRATA_CHECK(joined.reason() == whole["finish_reason"]);
  }
  const Json calls = whole["message"].value("tool_calls", Json::array());
  STRATA_CHECK(!calls.empty() || whole["finish_reason"] == "stop");
  for (const Json& call : calls) {
    STRATA_CHECK(Offered()->Has(call["function"]["name"].get<std::string>()));
  }
  return 0;
}
