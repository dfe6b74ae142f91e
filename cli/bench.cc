#include "cli/bench.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <mutex>
#include <thread>

#include "common/random.h"

namespace strata::cli {
namespace {

using std::chrono::steady_clock;

double MsBetween(steady_clock::time_point from, steady_clock::time_point to) {
  return std::chrono::duration<double, std::milli>(to - from).count();
}

struct Measured {
  absl::Status status;
  uint64_t prompt_tokens = 0;
  uint64_t generated_tokens = 0;
  double ttft_ms = 0;
  std::vector<double> gaps_ms;
  std::string numerics_class;
};

std::vector<uint32_t> RandomPrompt(const BenchOptions& options, uint32_t request) {
  std::vector<uint32_t> ids(options.prompt_tokens);
  for (uint32_t i = 0; i < options.prompt_tokens; ++i) {
    ids[i] = static_cast<uint32_t>(Philox(/*seed=*/1, request, i) % options.vocab_size);
  }
  return ids;
}

Measured MeasureOne(sdk::Client* client, const BenchOptions& options, uint32_t request,
                    const sdk::Cancellation& cancellation) {
  sdk::GenerateRequest generate;
  generate.model = options.model;
  generate.prompt = RandomPrompt(options, request);
  generate.max_tokens = options.max_tokens;
  generate.ignore_eos = true;
  generate.sampling.temperature = 0;
  Measured measured;
  const auto begin = steady_clock::now();
  auto stream = client->Stream(generate, {.timeout = {}, .cancellation = cancellation});
  if (!stream.ok()) {
    measured.status = stream.status();
    return measured;
  }
  auto last = begin;
  while (true) {
    const auto piece = stream->Next();
    if (!piece.ok()) {
      measured.status = piece.status();
      return measured;
    }
    if (!piece->has_value()) {
      break;
    }
    const size_t tokens = (*piece)->token_ids.size();
    if (tokens == 0) {
      continue;
    }
    const auto now = steady_clock::now();
    size_t gaps = tokens;
    if (measured.generated_tokens == 0) {
      measured.ttft_ms = MsBetween(begin, now);
      gaps = 0;  // Those that came with the first one took no time of their own.
    }
    measured.gaps_ms.insert(measured.gaps_ms.end(), gaps,
                            MsBetween(last, now) / static_cast<double>(tokens));
    measured.generated_tokens += tokens;
    last = now;
  }
  measured.prompt_tokens = stream->result().prompt_tokens;
  measured.numerics_class = stream->result().numerics_class;
  return measured;
}

Percentiles PercentilesOf(std::vector<double> values) {
  return {Percentile(&values, 0.50), Percentile(&values, 0.95), Percentile(&values, 0.99)};
}

}  // namespace

double Percentile(std::vector<double>* values, double share) {
  if (values->empty()) {
    return 0;
  }
  std::sort(values->begin(), values->end());
  const double rank = std::ceil(share * static_cast<double>(values->size()));
  return (*values)[static_cast<size_t>(std::max(rank, 1.0)) - 1];
}

BenchResult RunBench(sdk::Client* client, const BenchOptions& options,
                     const sdk::Cancellation& cancellation,
                     const std::function<void(uint32_t done)>& on_done) {
  std::mutex mutex;
  uint32_t next = 0;
  uint32_t done = 0;
  uint64_t prompt_tokens = 0;
  uint64_t generated_tokens = 0;
  std::vector<double> ttft_ms;
  std::vector<double> gaps_ms;
  BenchResult result;
  const auto begin = steady_clock::now();
  const auto loop = [&] {
    while (true) {
      uint32_t request = 0;
      {
        const std::lock_guard<std::mutex> lock(mutex);
        if (next == options.requests || cancellation.cancelled()) {
          return;
        }
        request = next++;
      }
      const Measured one = MeasureOne(client, options, request, cancellation);
      const std::lock_guard<std::mutex> lock(mutex);
      on_done(++done);
      if (!one.status.ok()) {
        ++result.failed;
        if (result.first_error.ok()) result.first_error = one.status;
        continue;
      }
      prompt_tokens += one.prompt_tokens;
      generated_tokens += one.generated_tokens;
      if (one.generated_tokens > 0) ttft_ms.push_back(one.ttft_ms);
      gaps_ms.insert(gaps_ms.end(), one.gaps_ms.begin(), one.gaps_ms.end());
      result.numerics_class = one.numerics_class;
    }
  };
  std::vector<std::thread> threads;
  for (uint32_t i = 0; i < std::min(options.clients, options.requests); ++i) {
    threads.emplace_back(loop);
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
  result.wall_s = MsBetween(begin, steady_clock::now()) / 1e3;
  result.requests = next;
  result.prompt_tokens_per_s = static_cast<double>(prompt_tokens) / result.wall_s;
  result.generated_tokens_per_s = static_cast<double>(generated_tokens) / result.wall_s;
  result.ttft_ms = PercentilesOf(std::move(ttft_ms));
  result.inter_token_ms = PercentilesOf(std::move(gaps_ms));
  return result;
}

}  // namespace strata::cli
