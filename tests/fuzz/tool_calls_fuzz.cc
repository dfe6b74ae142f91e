// An answer that is read for thoughts and calls: two bytes choose the formats and how it is read,
// the rest is the answer. However it is cut, the same is said; arguments that are said to be whole
// are JSON; and what holds no call and no thought is text as it was.
#include <string>
#include <vector>

#include "common/check.h"
#include "tests/fuzz/input.h"
#include "tests/text/tools/reading.h"
#include "text/tools/answer_reader.h"
#include "text/unicode/utf8.h"

namespace strata {
namespace {

using Kind = AnswerEvent::Kind;

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

void Check(const std::vector<AnswerEvent>& events) {
  std::string arguments;
  bool in_call = false;
  size_t calls = 0;
  for (const AnswerEvent& event : events) {
    switch (event.kind) {
      case Kind::kCall:
        STRATA_CHECK(!in_call && event.call == calls++);
        STRATA_CHECK(Offered()->Has(event.name) && !event.id.empty());
        in_call = true;
        arguments.clear();
        break;
      case Kind::kArguments:
        STRATA_CHECK(in_call);
        arguments += event.text;
        break;
      case Kind::kCallEnd:
        STRATA_CHECK(in_call);
        STRATA_CHECK(!event.whole || (arguments.starts_with('{') && IsJson(arguments)));
        in_call = false;
        break;
      default:
        STRATA_CHECK(!in_call && !event.text.empty());
    }
  }
  STRATA_CHECK(!in_call);
}

}  // namespace
}  // namespace strata

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace strata;  // NOLINT(google-build-using-namespace)
  fuzz::Input input(data, size);
  const uint32_t tools = input.Below(static_cast<uint32_t>(ToolFormats().size()) + 1);
  const uint8_t flags = input.Byte();
  const uint32_t thoughts = flags % 16 % (static_cast<uint32_t>(ThoughtFormats().size()) + 1);
  AnswerReaderOptions options;
  if (tools > 0) options.tools = &ToolFormats()[tools - 1];
  if (thoughts > 0) options.thoughts = &ThoughtFormats()[thoughts - 1];
  options.offered = Offered();
  options.id_seed = "fuzz";
  options.in_thought = (flags & 16) != 0;
  options.one_call = (flags & 32) != 0;
  std::vector<std::string_view> tokens;
  if (options.tools != nullptr && (flags & 64) != 0) tokens = options.tools->tokens;
  if (options.thoughts != nullptr && (flags & 128) != 0 && !options.thoughts->open.empty()) {
    const auto& parts = options.thoughts->tokens;
    if (parts.empty())
      tokens.insert(tokens.end(), {options.thoughts->open, options.thoughts->close});
    tokens.insert(tokens.end(), parts.begin(), parts.end());
  }
  options.is_special = [&tokens](std::string_view text) {
    return std::find(tokens.begin(), tokens.end(), text) != tokens.end();
  };
  const std::string answer = WellFormed(input.Bytes(size));
  const auto parts = testing::PartsOf(answer, tokens);
  const auto whole = testing::ReadWhole(options, parts);
  Check(whole);
  STRATA_CHECK(testing::Read(options, parts, [](size_t) { return true; }) == whole);
  STRATA_CHECK(testing::Read(options, parts, [](size_t at) { return at * 2654435761U % 7 < 2; }) ==
               whole);
  const bool all_text = whole.empty() || (whole.size() == 1 && whole[0].kind == Kind::kText);
  const auto is_harmony = [](const auto* row) { return row != nullptr && row->name == "harmony"; };
  const bool channels = is_harmony(options.tools) || is_harmony(options.thoughts);
  const bool marked = options.in_thought || tokens.size() > 0 ||
                      answer.find("hink") != std::string::npos ||
                      answer.find("HINK") != std::string::npos || channels ||
                      (options.thoughts != nullptr &&
                       (options.thoughts->name == "granite" || options.thoughts->name == "gemma4"));
  if (all_text && !marked) {
    STRATA_CHECK((whole.empty() ? "" : whole[0].text) == answer);
  }
  return 0;
}
