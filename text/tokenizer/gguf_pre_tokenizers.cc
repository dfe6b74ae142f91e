#include "text/tokenizer/gguf_pre_tokenizers.h"

#include <algorithm>
#include <iterator>
#include <utility>
#include <vector>

#include "common/status.h"
#include "text/tokenizer/pre_tokenizers.h"
#include "text/tokenizer/text_pattern.h"

namespace strata {
namespace {

#define CONTRACTIONS "(?i:'s|'t|'re|'ve|'m|'ll|'d)"
#define LEAD R"([^\r\n\p{L}\p{N}]?)"
#define WORD LEAD R"(\p{L}+)"
#define SPACES R"(\s*[\r\n]+|\s+(?!\S)|\s+)"
#define TAIL R"( ?[^\s\p{L}\p{N}]+[\r\n]*|)" SPACES
#define TAIL_SLASH R"( ?[^\s\p{L}\p{N}]+[\r\n/]*|)" SPACES
#define UPPER R"(\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M})"
#define LOWER R"(\p{Ll}\p{Lm}\p{Lo}\p{M})"
#define NOT_HAN R"(&&[^\p{Han}])"
// Words that begin anew where a capital follows a small letter, with what stands behind each.
#define CASED(upper, lower, behind) \
  LEAD "[" upper "]*[" lower "]+" behind "|" LEAD "[" upper "]+[" lower "]*" behind
#define MARKED_LETTERS R"([!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?)"

constexpr char kDigit[] = R"(\p{N})";
constexpr char kDigits[] = R"(\p{N}+)";
constexpr char kUpToThree[] = R"(\p{N}{1,3})";
constexpr char kThree[] = "[0-9][0-9][0-9]";
// Numbers in threes, from their ends.
constexpr char kThreesFromBehind[] = R"((?=(\d{3})+(?!\d)))";
constexpr char kLine[] = R"([\r\n])";
constexpr char kLinesApart[] = R"([^\n]+|[\n]+)";
constexpr char kGpt2[] =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";
constexpr char kLlama3[] = CONTRACTIONS "|" WORD R"(|\p{N}{1,3}|)" TAIL;
constexpr char kQwen2[] = CONTRACTIONS "|" WORD R"(|\p{N}|)" TAIL;
constexpr char kQwen35[] =
    CONTRACTIONS "|" LEAD R"([\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|)" SPACES;
constexpr char kNoContractions[] = WORD R"(|\p{N}|)" TAIL;
constexpr char kLongNumbers[] = CONTRACTIONS "|" WORD R"(|\p{N}+|)" TAIL;
constexpr char kJais2[] = CONTRACTIONS
    "|" WORD R"(|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s{512}(?!\S)|\s{256}(?!\S))"
    R"(|\s{128}(?!\S)|\s{64}(?!\S)|\s{32}(?!\S)|\s{16}(?!\S)|\s{8}(?!\S)|\s{4}(?!\S))"
    R"(|\s{1,2}(?!\S)|\s{1})";
constexpr char kSeedCoder[] = CONTRACTIONS "|" WORD R"(|\p{N}{1}| ?[^\s\p{L}\p{N}\r\n]+|)" SPACES;
constexpr char kExaoneMoe[] = CONTRACTIONS "|" LEAD R"((?:\p{L}\p{M}*(?: \p{L}\p{M}*)*)+|\p{N})"
                                           R"(| ?[^\s\p{L}\p{N}]+[\r\n/]?|\s*[\r\n]|\s+(?!\S)|\s+)";
constexpr char kBailing[] =
    R"('(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]++[\r\n]*)"
    R"(|\s*[\r\n]|\s+(?!\S)|\s+)";
constexpr char kTekken[] = CASED(UPPER, LOWER, "") R"(|\p{N}|)" TAIL_SLASH;
constexpr char kO200k[] = CASED(UPPER, LOWER, CONTRACTIONS "?") R"(|\p{N}{1,3}|)" TAIL_SLASH;
constexpr char kYoutu[] = CASED(UPPER, LOWER, CONTRACTIONS "?") R"(|\p{N}|)" TAIL_SLASH;
constexpr char kKimi[] =
    R"([\p{Han}]+|)" CASED(UPPER NOT_HAN, LOWER NOT_HAN, CONTRACTIONS "?") R"(|\p{N}{1,3}|)" TAIL;
constexpr char kYoutuScripts[] =
    "[\uac00-\ud7a3\u3131-\u318e]+|["
    "\uff01\u2026\u201c\u201d\u2018\u2019\u2014\uff1a\uff1b\uff0c\u3001-\u303f\ufe30-\ufe4f]+"
    "|[\u3105-\u312f]+|[\u4e00-\u9fa5\u3040-\u309f\u30a0-\u30ff]+";
constexpr char kDeepSeek3Scripts[] = "[\u4e00-\u9fa5\u3040-\u309f\u30a0-\u30ff]+";
constexpr char kDeepSeek3[] = MARKED_LETTERS R"([\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*|)" SPACES;
constexpr char kSpark[] = MARKED_LETTERS R"([\p{L}\p{M}]+| ?[\p{P}\p{S}]+|[\r\n]|\s+(?!\S)|\s+)";
constexpr char kAfmoeScripts[] =
    "[\u4e00-\u9fff\u3400-\u4dbf\uf900-\ufaff\u3040-\u309f\u30a0-\u30ff\uff65-\uff9f\u2f00-\u2fdf"
    "\u0e40-\u0e7f\u0e80-\u0eff\u1780-\u17ff\u1000-\u109f\uaa60-\uaa7f\ua9e0-\ua9ff\uac00-"
    "\ud7af\u1100-\u11ff]+";
// Latin, Greek, Cyrillic, Armenian, Georgian, Cherokee and others with capitals.
constexpr char kDeepSeekLlmWords[] =
    "\\s?"
    "[A-Za-z\u00b5\u00c0-\u00d6\u00d8-\u00f6\u00f8-\u01ba\u01bc-\u01bf\u01c4-\u0293"
    "\u0295-\u02af\u0370-\u0373\u0376\u0377\u037b-\u037d\u037f\u0386\u0388-\u038a\u038c"
    "\u038e-\u03a1\u03a3-\u03f5\u03f7-\u0481\u048a-\u052f\u0531-\u0556\u10a0-\u10c5"
    "\u13a0-\u13f5\u13f8-\u13fd\u1c90-\u1cba\u1cbd-\u1cbf\u1d00-\u1d2b\u1d6b-\u1d77"
    "\u1d79-\u1d9a\u1e00-\u1f15\u1f18-\u1f1d\u1f20-\u1f45\u1f48-\u1f4d\u1f50-\u1f57\u1f59"
    "\u1f5b\u1f5d\u1f5f-\u1f7d\u1f80-\u1fb4\u1fb6-\u1fbc\u1fbe\u1fc2-\u1fc4\u1fc6-\u1fcc"
    "\u1fd0-\u1fd3\u1fd6-\u1fdb\u1fe0-\u1fec\u1ff2-\u1ff4\u1ff6-\u1ffc\u2102\u2107"
    "\u210a-\u2113\u2115\u2119-\u211d\u2124\u2126\u2128\u212a-\u212d\u212f-\u2134\u2139"
    "\u213c-\u213f\u2145-\u2149\u214e\u2183\u2184\u2c00-\u2c7b\u2c7e-\u2ce4\u2ceb-\u2cee"
    "\u2cf2\u2cf3\ua640-\ua66d\ua680-\ua69b\ua722-\ua76f\ua771-\ua787\ua78b-\ua78e"
    "\uab70-\uabbf\ufb00-\ufb06\ufb13-\ufb17\uff21-\uff3a\uff41-\uff5a\U00010400-\U0001044f"
    "\U000104b0-\U000104d3\U000104d8-\U000104fb\U00010c80-\U00010cb2\U00010cc0-\U00010cf2"
    "\U000118a0-\U000118df\U0001e900-\U0001e943]+";
constexpr char kDeepSeekLlmMarks[] =
    "\\s?[!-/:-~\uff01-\uff0f\uff1a-\uff5e\u2018-\u201f\u3000-\u3002]+";
constexpr char kBlanksAtEnds[] = R"(\s+$)";
constexpr char kDeepSeekScripts[] = "[\u4e00-\u9fa5\u0800-\u4e00\uac00-\ud7ff]+";
constexpr char kDeepSeekCoderWords[] = R"(\s?\p{L}+)";
constexpr char kDeepSeekCoderMarks[] = R"(\s?\p{P}+)";
constexpr char kBloom[] = " ?[^(\\s|.,!?\u2026\u3002\uff0c\u3001\u0964\u06d4\u060c)]+";
constexpr char kMarks[] = R"([\p{P}\$\+<=>\^~\|]+)";
constexpr char kMarksAndTicks[] = R"([\p{P}\$\+<=>\^~\|`]+)";
constexpr char kTinyAyaNumbers[] = R"(\d{1,3}(?=(?:\d{3})*\b))";
constexpr char kAfmoeNumbers[] = R"((?=(\p{N}{3})+(?!\p{N})))";

#undef CONTRACTIONS
#undef LEAD
#undef WORD
#undef SPACES
#undef TAIL
#undef TAIL_SLASH
#undef UPPER
#undef LOWER
#undef NOT_HAN
#undef CASED
#undef MARKED_LETTERS

constexpr GgufPreTokenizer kGgufPreTokenizers[] = {
    {.name = "", .splits = {kMarks, kGpt2, kDigits, kThree}},
    {.name = "default", .splits = {kMarks, kGpt2, kDigits, kThree}},
    {.name = "llama-bpe", .splits = {kLlama3}, .whole_words = true, .adds_bos = true},
    {.name = "llama3", .splits = {kLlama3}, .whole_words = true, .adds_bos = true},
    {.name = "llama-v3", .splits = {kLlama3}, .whole_words = true, .adds_bos = true},
    {.name = "falcon3", .splits = {kLlama3}, .whole_words = true, .adds_bos = true},
    {.name = "falcon-h1", .splits = {kLlama3}, .whole_words = true, .adds_bos = true},
    {.name = "pixtral", .splits = {kLlama3}, .whole_words = true, .adds_bos = true},
    {.name = "midm-2.0", .splits = {kLlama3}, .whole_words = true, .adds_bos = true},
    {.name = "lfm2", .splits = {kLlama3}, .whole_words = true, .adds_bos = true},
    {.name = "dbrx", .splits = {kLlama3}},
    {.name = "smaug-bpe", .splits = {kLlama3}},
    {.name = "glm4", .splits = {kLlama3}},
    {.name = "chatglm-bpe", .splits = {kLlama3}},
    {.name = "minicpm5", .splits = {kUpToThree, kLongNumbers}, .whole_words = true},
    {.name = "jais-2", .splits = {kJais2}},
    {.name = "qwen2", .splits = {kQwen2}, .nfc = true},
    {.name = "deepseek-r1-qwen", .splits = {kQwen2}, .nfc = true},
    {.name = "megrez", .splits = {kQwen2}},
    {.name = "stablelm2", .splits = {kQwen2}},
    {.name = "hunyuan", .splits = {kQwen2}},
    {.name = "kormo", .splits = {kQwen2}},
    {.name = "f2llmv2", .splits = {kQwen2}},
    {.name = "solar-open", .splits = {kQwen2}},
    {.name = "grok-2", .splits = {kQwen2}},
    {.name = "laguna", .splits = {kLinesApart, kQwen2}},
    {.name = "qwen35", .splits = {kQwen35}, .nfc = true},
    {.name = "ufakzeka", .splits = {kNoContractions}},
    {.name = "seed-coder", .splits = {kSeedCoder}},
    {.name = "exaone-moe", .splits = {kExaoneMoe}},
    {.name = "bailingmoe", .splits = {kBailing}},
    {.name = "bailingmoe2", .splits = {kBailing}},
    {.name = "llada-moe", .splits = {kBailing}},
    {.name = "tekken", .splits = {kTekken}, .whole_words = true, .adds_bos = true},
    {.name = "gpt-4o", .splits = {kO200k}},
    {.name = "llama4", .splits = {kO200k}},
    {.name = "kanana2", .splits = {kO200k}},
    {.name = "talkie", .splits = {kO200k}},
    {.name = "minimax-m2", .splits = {kO200k}},
    {.name = "tiny_aya", .splits = {kTinyAyaNumbers, kO200k}},
    {.name = "cohere2moe", .splits = {kTinyAyaNumbers, kO200k}},
    {.name = "youtu", .splits = {kYoutuScripts, kYoutu}, .whole_words = true},
    // As the vocabularies of tiktoken's kind, whose ranks are their tokens' ids.
    {.name = "kimi-k2", .splits = {kKimi}, .whole_words = true},
    {.name = "deepseek-llm",
     .splits = {kLine, kDeepSeekLlmWords, kDeepSeekLlmMarks, kBlanksAtEnds, kDeepSeekScripts,
                kDigit}},
    {.name = "deepseek-coder",
     .splits = {kLine, kDeepSeekCoderWords, kDeepSeekCoderMarks, kDeepSeekScripts, kDigit}},
    {.name = "deepseek-v3", .splits = {kUpToThree, kDeepSeek3Scripts, kDeepSeek3}},
    {.name = "hunyuan-dense", .splits = {kUpToThree, kDeepSeek3Scripts, kDeepSeek3}},
    {.name = "joyai-llm", .splits = {kUpToThree, kDeepSeek3Scripts, kDeepSeek3}},
    {.name = "hy_v4", .splits = {kUpToThree, kDeepSeek3Scripts, kDeepSeek3}},
    {.name = "spark2_5", .splits = {kUpToThree, kDeepSeek3Scripts, kSpark, kDigit}},
    {.name = "afmoe", .splits = {kDigits, kAfmoeNumbers, kAfmoeScripts, kDeepSeek3}},
    {.name = "superbpe", .splits = {kDigits, kThreesFromBehind}},
    {.name = "falcon", .splits = {kMarksAndTicks, kGpt2, kDigits, kThree}},
    {.name = "bloom", .splits = {kBloom}},
    {.name = "gpt3-finnish", .splits = {kBloom}},
    {.name = "poro-chat", .splits = {kBloom}},
    {.name = "viking", .splits = {kBloom, kDigit}},
    {.name = "smollm", .splits = {kDigit, kGpt2}},
    {.name = "refact", .splits = {kDigit, kGpt2}},
    {.name = "starcoder", .splits = {kDigit, kGpt2}},
    {.name = "codeshell", .splits = {kDigit, kGpt2}},
    {.name = "exaone", .splits = {kDigit, kGpt2}},
    {.name = "minerva-7b", .splits = {kDigit, kGpt2}},
    {.name = "mellum2", .splits = {kDigit, kGpt2}},
    {.name = "command-r", .splits = {kDigit, kGpt2}, .nfc = true},
    {.name = "gpt-2", .splits = {kGpt2}},
    {.name = "phi-2", .splits = {kGpt2}},
    {.name = "gigachat", .splits = {kGpt2}},
    {.name = "a.x-4.0", .splits = {kGpt2}},
    {.name = "mellum", .splits = {kGpt2}},
    {.name = "jais", .splits = {kGpt2}},
    {.name = "trillion", .splits = {kGpt2}},
    {.name = "exaone4", .splits = {kGpt2}},
    {.name = "granite-docling", .splits = {kGpt2}},
    {.name = "mpt", .splits = {kGpt2}, .nfc = true},
    {.name = "olmo", .splits = {kGpt2}, .nfc = true},
};

}  // namespace

const GgufPreTokenizer* FindGgufPreTokenizer(std::string_view name) {
  const auto* const found =
      std::find_if(std::begin(kGgufPreTokenizers), std::end(kGgufPreTokenizers),
                   [&](const auto& row) { return row.name == name; });
  return found == std::end(kGgufPreTokenizers) ? nullptr : found;
}

std::vector<std::string_view> GgufPreTokenizerNames() {
  std::vector<std::string_view> names;
  for (const GgufPreTokenizer& row : kGgufPreTokenizers) {
    names.push_back(row.name);
  }
  return names;
}

absl::StatusOr<std::unique_ptr<PreTokenizer>> MakeGgufPreTokenizer(const GgufPreTokenizer& row) {
  std::vector<std::unique_ptr<PreTokenizer>> parts;
  for (const char* split : row.splits) {
    if (split == nullptr) {
      break;
    }
    ASSIGN_OR_RETURN(TextPattern pattern, TextPattern::OfRegex(split));
    parts.push_back(
        std::make_unique<SplitPreTokenizer>(std::move(pattern), SplitBehavior::kIsolated, false));
  }
  ASSIGN_OR_RETURN(auto bytes, ByteLevelPreTokenizer::Make(/*add_prefix_space=*/false,
                                                           /*use_regex=*/false));
  parts.push_back(std::move(bytes));
  return std::make_unique<SequencePreTokenizer>(std::move(parts));
}

}  // namespace strata
