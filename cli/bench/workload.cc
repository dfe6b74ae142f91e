#include "cli/bench/workload.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <numbers>
#include <optional>

#include "common/limits.h"
#include "common/random.h"
#include "common/status.h"

namespace strata::cli {
namespace {

// Streams of random numbers that have nothing to do with each other under one seed. The prompts'
// own tokens take the seed itself.
enum class Stream : uint32_t { kLengths = 1, kArrivals = 2, kPrefixes = 3 };

uint64_t SeedOf(uint64_t seed, Stream stream) {
  return Philox(seed, 0xFFFF'FFFF, static_cast<uint32_t>(stream));
}

template <typename T>
std::optional<T> Number(std::string_view text) {
  T value{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) {
    return std::nullopt;
  }
  return value;
}

std::optional<uint32_t> Tokens(std::string_view text) {
  const std::optional<uint32_t> tokens = Number<uint32_t>(text);
  return tokens && *tokens >= 1 && *tokens <= kMaxContextTokens ? tokens : std::nullopt;
}

std::vector<std::string_view> Split(std::string_view text, char separator) {
  std::vector<std::string_view> parts;
  while (true) {
    const size_t at = text.find(separator);
    parts.push_back(text.substr(0, at));
    if (at == text.npos) {
      return parts;
    }
    text.remove_prefix(at + 1);
  }
}

std::string_view Trimmed(std::string_view text) {
  const size_t begin = text.find_first_not_of(" \t\r");
  return begin == text.npos ? "" : text.substr(begin, text.find_last_not_of(" \t\r") - begin + 1);
}

// In (0, 1]: its logarithm is finite.
double PositiveUniform(uint64_t bits) { return 1.0 - UniformDouble(bits); }

}  // namespace

absl::StatusOr<LengthDistribution> LengthDistribution::Parse(std::string_view text) {
  constexpr std::string_view kLognormal = "lognormal:";
  if (const auto tokens = Tokens(text)) {
    return Always(*tokens);
  }
  if (text.substr(0, kLognormal.size()) == kLognormal) {
    const auto parts = Split(text.substr(kLognormal.size()), ',');
    const auto median = Number<double>(parts[0]);
    const auto sigma = parts.size() == 3 ? Number<double>(parts[1]) : std::nullopt;
    const auto max = parts.size() == 3 ? Tokens(parts[2]) : std::nullopt;
    if (median && sigma && max && *median >= 1 && *median <= *max && *sigma > 0 && *sigma <= 10) {
      return LengthDistribution(1, *max, *median, *sigma);
    }
  } else if (const auto ends = Split(text, '-'); ends.size() == 2) {
    const auto min = Tokens(ends[0]);
    const auto max = Tokens(ends[1]);
    if (min && max && *min <= *max) {
      return LengthDistribution(*min, *max, 0, 0);
    }
  }
  return Error(absl::StatusCode::kInvalidArgument, "BAD_LENGTHS",
               "write a length as 128, as 1-1500 (uniform) or as lognormal:200,1.0,1500 (median, "
               "sigma of the logarithm, largest), not \"" +
                   std::string(text) + "\"");
}

LengthDistribution LengthDistribution::Always(uint32_t tokens) { return {tokens, tokens, 0, 0}; }

uint32_t LengthDistribution::Draw(uint64_t bits, uint64_t more_bits) const {
  if (sigma_ == 0) {
    const double span = static_cast<double>(max_ - min_) + 1;
    return min_ + static_cast<uint32_t>(UniformDouble(bits) * span);
  }
  // Box-Muller.
  const double normal = std::sqrt(-2 * std::log(PositiveUniform(bits))) *
                        std::cos(2 * std::numbers::pi * UniformDouble(more_bits));
  const double tokens = std::round(median_ * std::exp(sigma_ * normal));
  return static_cast<uint32_t>(
      std::clamp(tokens, static_cast<double>(min_), static_cast<double>(max_)));
}

absl::StatusOr<std::vector<LengthPair>> ParseLengths(std::string_view text) {
  std::vector<LengthPair> lengths;
  size_t number = 0;
  for (const std::string_view raw : Split(text, '\n')) {
    ++number;
    const std::string_view line = Trimmed(raw);
    if (line.empty() || line.front() == '#') {
      continue;
    }
    const auto parts = Split(line, ',');
    const auto prompt = Tokens(Trimmed(parts[0]));
    const auto answer = parts.size() == 2 ? Tokens(Trimmed(parts[1])) : std::nullopt;
    if (!prompt || !answer) {
      return Error(absl::StatusCode::kInvalidArgument, "BAD_LENGTHS",
                   "line " + std::to_string(number) + ": write PROMPT,ANSWER in tokens, not \"" +
                       std::string(line) + "\"");
    }
    lengths.push_back({*prompt, *answer});
  }
  if (lengths.empty()) {
    return Error(absl::StatusCode::kInvalidArgument, "BAD_LENGTHS",
                 "there is no line PROMPT,ANSWER in it");
  }
  return lengths;
}

uint32_t Workload::Which(uint32_t request) const {
  return options_.distinct == 0 ? request : request % options_.distinct;
}

LengthPair Workload::Lengths(uint32_t request) const {
  request = Which(request);
  if (!options_.lengths.empty()) {
    return options_.lengths[request % options_.lengths.size()];
  }
  const uint64_t seed = SeedOf(options_.seed, Stream::kLengths);
  return {options_.prompt.Draw(Philox(seed, request, 0), Philox(seed, request, 1)),
          options_.answer.Draw(Philox(seed, request, 2), Philox(seed, request, 3))};
}

WorkloadRequest Workload::Make(uint32_t request) const {
  request = Which(request);
  const LengthPair lengths = Lengths(request);
  WorkloadRequest made;
  made.max_tokens = lengths.answer_tokens;
  made.prompt.reserve(options_.shared_prefix + lengths.prompt_tokens);
  const auto add = [&](uint64_t seed, uint32_t choice, uint32_t count) {
    for (uint32_t i = 0; i < count; ++i) {
      made.prompt.push_back(static_cast<uint32_t>(Philox(seed, choice, i) % options_.vocab_size));
    }
  };
  add(SeedOf(options_.seed, Stream::kPrefixes), request % options_.prefix_groups,
      options_.shared_prefix);
  add(options_.seed, request, lengths.prompt_tokens);
  return made;
}

nanoseconds Workload::ArrivalGap(uint32_t request) const {
  const uint64_t bits = Philox(SeedOf(options_.seed, Stream::kArrivals), request, 0);
  const double seconds = -std::log(PositiveUniform(bits)) / options_.rate;
  return nanoseconds(static_cast<int64_t>(std::min(seconds * 1e9, 1e18)));
}

}  // namespace strata::cli
