#include "worker/service/bench.h"

#include <algorithm>
#include <charconv>
#include <cstdio>
#include <memory>
#include <utility>

#include "common/clock.h"
#include "common/limits.h"
#include "common/model/numerics_class.h"
#include "common/model/rank_outputs.h"
#include "common/platform/platform.h"
#include "common/status.h"
#include "common/units.h"
#include "worker/backend/cpu/cpu_device.h"
#include "worker/backend/device_choice.h"
#include "worker/backend/kinds/make_backend.h"
#include "worker/service/bench_driver.h"
#include "worker/service/bench_weights.h"
#include "worker/service/worker_options.h"
#include "worker/weights/stored_tensors.h"

namespace strata {
namespace {

constexpr uint32_t kChunkTokens = 512;
constexpr uint64_t kProbeBytes = uint64_t{1} << 30;
constexpr uint64_t kProbeEverySteps = 8;
constexpr double kMeasureSeconds = 0.6;

absl::Status BadBench(const std::string& what, const std::string& hint) {
  return Error(absl::StatusCode::kInvalidArgument, "BAD_FLAGS", what).Hint(hint);
}

// What is measured: a stage, and where its weights are.
struct Subject {
  std::string what;
  StageSpec spec;
  std::vector<StageTensor> tensors;
  std::vector<float> rotary;
  std::unique_ptr<TensorSource> weights;
  uint64_t read_bytes = 0;  // Of weights, by one decode step.
};

absl::Status SetLayers(const std::string& text, StageSpec* spec) {
  const auto layers = static_cast<uint32_t>(spec->model.layers.size());
  spec->last_layer = layers - 1;
  if (!text.empty()) {
    const char* end = text.data() + text.size();
    const auto first = std::from_chars(text.data(), end, spec->first_layer);
    if (first.ec != std::errc() || first.ptr == end || *first.ptr != '-') {
      return BadBench("--layers " + text + " is no range", "write --layers 0-9");
    }
    const auto last = std::from_chars(first.ptr + 1, end, spec->last_layer);
    if (last.ec != std::errc() || last.ptr != end || spec->first_layer > spec->last_layer ||
        spec->last_layer >= layers) {
      return BadBench(
          "--layers " + text + " is no range of a model of " + std::to_string(layers) + " layers",
          "write --layers 0-" + std::to_string(layers - 1));
    }
  }
  spec->embeds = spec->first_layer == 0;
  spec->heads = spec->last_layer == layers - 1;
  return absl::OkStatus();
}

absl::StatusOr<Subject> MakeSubject(const BenchOptions& options) {
  Subject subject;
  StageSpec& spec = subject.spec;
  Checkpoint checkpoint;
  if (options.model.empty()) {
    ASSIGN_OR_RETURN(spec.model, ShapeSpec(options.shape));
  } else {
    ASSIGN_OR_RETURN(checkpoint, OpenCheckpoint(options.model));
    spec.model = checkpoint.spec;
  }
  RETURN_IF_ERROR(SetLayers(options.layers, &spec));
  spec.quantize = options.quantize == "int8"   ? v1::QUANTIZE_INT8
                  : options.quantize == "int4" ? v1::QUANTIZE_INT4
                                               : v1::QUANTIZE_NONE;
  spec.activations = v1::ACTIVATIONS_INT8;  // Of quantized matrices; the others take floats.
  const uint32_t most = *std::max_element(options.batch.begin(), options.batch.end());
  const uint64_t context = options.prompt + options.generate + kPageTokens;
  if (context > kMaxContextTokens) {
    return BadBench("--prompt and --generate are too long", "lower them");
  }
  spec.context = static_cast<uint32_t>(context);
  spec.max_batch_tokens = std::max(kChunkTokens, most);
  spec.max_batch_items = most;
  const uint64_t pages = (context + kPageTokens - 1) / kPageTokens + 1;
  spec.kv_pages.assign(spec.model.kv_groups.size(), pages * (most + 1));
  subject.tensors =
      TensorsOf(spec.model, spec.first_layer, spec.last_layer, spec.embeds, spec.heads,
                [&](const std::string& name) { return checkpoint.Find(name) != nullptr; });
  if (options.model.empty()) {
    subject.weights = std::make_unique<RandomWeights>(subject.tensors);
  } else {
    ASSIGN_OR_RETURN(subject.weights, CheckpointWeights::Open(checkpoint));
  }
  subject.rotary = MakeRotaryTables(spec.model, spec.context);
  spec.rotary = subject.rotary;
  subject.what = (options.model.empty() ? options.shape : options.model) + " layers " +
                 std::to_string(spec.first_layer) + "-" + std::to_string(spec.last_layer);
  return subject;
}

// Bytes of one sequence's KV of `length` tokens that a decode step reads.
uint64_t KvBytes(const StageSpec& spec, uint32_t length) {
  uint64_t bytes = 0;
  for (uint32_t group = 0; group < spec.model.kv_groups.size(); ++group) {
    const uint32_t window = spec.model.kv_groups[group].window;
    bytes += KvBytesPerToken(spec.model, spec.first_layer, spec.last_layer, group, 2) *
             (window == 0 ? length : std::min(length, window));
  }
  return bytes;
}

double MedianOf(std::vector<double>* values) {
  const auto middle = values->begin() + static_cast<ptrdiff_t>(values->size() / 2);
  std::nth_element(values->begin(), middle, values->end());
  return *middle;
}

// With a `probe` memory is read between steps: what it gives changes from one second to the next,
// most of all where others share it.
absl::StatusOr<BenchReport::Batch> MeasureBatch(BenchDriver* driver, const Subject& subject,
                                                const BenchDriver::Sequence& prompt, uint32_t batch,
                                                uint64_t generate, ReadProbe* probe) {
  std::vector<BenchDriver::Sequence> sequences;
  for (uint32_t i = 0; i < batch; ++i) {
    ASSIGN_OR_RETURN(sequences.emplace_back(), driver->Fork(prompt));
  }
  std::vector<BenchDriver::Sequence*> pointers;
  pointers.reserve(sequences.size());
  for (BenchDriver::Sequence& sequence : sequences) {
    pointers.push_back(&sequence);
  }
  RETURN_IF_ERROR(driver->Step(pointers, 1).status());  // Copies the shared pages.
  std::vector<double> seconds;
  std::vector<double> rates;  // Bytes that a step must read, over its seconds.
  double total_s = 0;
  for (uint64_t i = 1; i < std::max<uint64_t>(generate, 2); ++i) {
    if (probe != nullptr && i % kProbeEverySteps == 1) {
      probe->Read();
    }
    ASSIGN_OR_RETURN(const double step_s, driver->Step(pointers, 1));
    seconds.push_back(step_s);
    total_s += step_s;
    const uint64_t kv_bytes = batch * KvBytes(subject.spec, sequences[0].length);
    rates.push_back(static_cast<double>(subject.read_bytes + kv_bytes) / step_s);
  }
  for (const BenchDriver::Sequence& sequence : sequences) {
    RETURN_IF_ERROR(driver->Release(sequence));
  }
  BenchReport::Batch out;
  out.batch = batch;
  out.generated_tokens_per_s = static_cast<double>(batch * seconds.size()) / total_s;
  out.read_bytes_per_s = MedianOf(&rates);
  out.step_ms = MedianOf(&seconds) * 1000;
  return out;
}

absl::Status CheckBenchOptions(const BenchOptions& options) {
  const bool bad_batch = options.batch.empty() ||
                         *std::min_element(options.batch.begin(), options.batch.end()) == 0 ||
                         *std::max_element(options.batch.begin(), options.batch.end()) > 4096;
  if (options.prompt == 0 || options.generate == 0 || bad_batch) {
    return BadBench("--prompt, --generate and --batch are at least 1, and --batch at most 4096",
                    "see --help");
  }
  constexpr uint32_t kMostThreads = 1024;
  if (!options.ranks.empty() &&
      (options.ranks.size() < 2 || options.ranks.size() > kMostRanks ||
       *std::min_element(options.ranks.begin(), options.ranks.end()) == 0 ||
       *std::max_element(options.ranks.begin(), options.ranks.end()) > kMostThreads)) {
    return BadBench("--ranks names the threads of 2 to 8 ranks, each 1 to 1024",
                    "write --ranks 1,1");
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<BenchReport> RunBench(const BenchOptions& options) {
  RETURN_IF_ERROR(CheckBenchOptions(options));
  KindOptions kinds;
  kinds.cpu = {
      .threads = static_cast<uint32_t>(options.threads), .isa = options.isa, .pin = options.pin};
  if (!options.ranks.empty()) {
    // Their threads are not pinned.
    kinds.cpu.pin = "off";
    for (const uint32_t threads : options.ranks) {
      kinds.cpu.ranks.push_back({.threads = threads, .share = static_cast<double>(threads)});
    }
  }
  ASSIGN_OR_RETURN(kinds.devices.choice, ParseDevices(options.devices));
  ASSIGN_OR_RETURN(
      const std::unique_ptr<Backend> backend,
      MakeBackend(options.ranks.empty() ? options.backend : std::string("cpu"), kinds));
  ASSIGN_OR_RETURN(Subject subject, MakeSubject(options));
  if (!TakesInt8Activations(backend->numerics())) {
    subject.spec.activations = v1::ACTIVATIONS_F32;
  }
  const SystemClock clock;
  BenchReport report;
  report.what = subject.what;
  report.backend = backend->name();
  const DeviceFacts facts = backend->facts();
  report.isa = facts.kind;
  report.threads = facts.threads;
  report.places = facts.placed;
  CpuDevice* const cpu = CpuDeviceOf(backend.get());
  if (cpu != nullptr) {
    report.pinned_cores = cpu->places().pinned_cores;
    report.memory_nodes = cpu->places().memory_nodes;
  }
  // A CPU's memory is read between steps; a device's, which nobody else reads, once.
  DeviceSpeed speed;
  if (cpu == nullptr) {
    ASSIGN_OR_RETURN(speed, backend->MeasureSpeed(kMeasureSeconds, kProbeBytes));
  }
  const TimePoint begin = clock.Now();
  ASSIGN_OR_RETURN(const std::unique_ptr<Shard> shard,
                   backend->Load(subject.spec, StoredTensors(subject.tensors, *subject.weights),
                                 nullptr, [](uint64_t, uint64_t) {}));
  subject.weights = nullptr;
  report.load_s = ToMs(clock.Now() - begin) / 1000;
  report.memory_bytes = shard->MemoryBytes();
  report.large_page_bytes = LargePageBytes();
  subject.read_bytes = shard->StepReadBytes();

  BenchDriver driver(subject.spec, shard.get(), &clock);
  BenchDriver::Sequence prompt = driver.NewSequence();
  double prompt_s = 0;
  while (prompt.length < options.prompt) {
    const auto tokens =
        static_cast<uint32_t>(std::min<uint64_t>(kChunkTokens, options.prompt - prompt.length));
    ASSIGN_OR_RETURN(const double seconds, driver.Step({&prompt}, tokens));
    prompt_s += seconds;
  }
  report.prompt_tokens_per_s = static_cast<double>(options.prompt) / prompt_s;

  const std::unique_ptr<ReadProbe> probe =
      cpu != nullptr ? cpu->NewReadProbe(kProbeBytes) : nullptr;
  ASSIGN_OR_RETURN(const BenchReport::Batch one,
                   MeasureBatch(&driver, subject, prompt, 1, options.generate, probe.get()));
  for (const uint32_t batch : options.batch) {
    if (batch == 1) {
      report.batch.push_back(one);
      continue;
    }
    ASSIGN_OR_RETURN(report.batch.emplace_back(),
                     MeasureBatch(&driver, subject, prompt, batch, options.generate, probe.get()));
  }
  // Without memory to measure with there is no share to speak of.
  const double bandwidth =
      probe != nullptr ? probe->MedianBytesPerSecond() : speed.read_bytes_per_s;
  const auto share = [bandwidth](const BenchReport::Batch& batch) {
    return bandwidth == 0 ? 0 : batch.read_bytes_per_s / bandwidth;
  };
  for (BenchReport::Batch& batch : report.batch) {
    batch.bandwidth_share = share(batch);
  }
  report.read_bandwidth_bytes_per_s = bandwidth;
  report.generated_tokens_per_s = one.generated_tokens_per_s;
  report.bandwidth_share = share(one);
  return report;
}

namespace {

std::string Number(double value) { return FormatFloat(static_cast<float>(value)); }

std::string Quoted(const std::string& text) {
  std::string out = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') {
      out += '\\';
    }
    out += static_cast<unsigned char>(c) < 0x20 ? ' ' : c;
  }
  return out + "\"";
}

// As in "1,2,4"; of anything else {0}, which RunBench refuses.
std::vector<uint32_t> NumbersOf(const std::string& text) {
  std::vector<uint32_t> numbers;
  for (const char *at = text.data(), *end = at + text.size(); at < end;) {
    const auto parsed = std::from_chars(at, end, numbers.emplace_back());
    if (parsed.ec != std::errc() || (parsed.ptr != end && *parsed.ptr != ',')) {
      return {0};
    }
    at = parsed.ptr + 1;
  }
  return numbers;
}

}  // namespace

std::string ToJson(const BenchReport& report) {
  std::string batch;
  for (const BenchReport::Batch& b : report.batch) {
    batch += (batch.empty() ? "" : ",") + std::string("{\"batch\":") + std::to_string(b.batch) +
             ",\"generated_tokens_per_s\":" + Number(b.generated_tokens_per_s) +
             ",\"step_ms\":" + Number(b.step_ms) +
             ",\"bandwidth_share\":" + Number(b.bandwidth_share) + "}";
  }
  std::string cores;
  for (const uint32_t core : report.pinned_cores) {
    cores += (cores.empty() ? "" : ",") + std::to_string(core);
  }
  return "{\"what\":" + Quoted(report.what) + ",\"backend\":" + Quoted(report.backend) +
         ",\"isa\":" + Quoted(report.isa) + ",\"threads\":" + std::to_string(report.threads) +
         ",\"pinned_cores\":[" + cores +
         "],\"memory_nodes\":" + std::to_string(report.memory_nodes) +
         ",\"large_page_bytes\":" + std::to_string(report.large_page_bytes) +
         ",\"load_s\":" + Number(report.load_s) +
         ",\"memory_bytes\":" + std::to_string(report.memory_bytes) +
         ",\"prompt_tokens_per_s\":" + Number(report.prompt_tokens_per_s) +
         ",\"generated_tokens_per_s\":" + Number(report.generated_tokens_per_s) +
         ",\"bandwidth_share\":" + Number(report.bandwidth_share) +
         ",\"read_bandwidth_bytes_per_s\":" + Number(report.read_bandwidth_bytes_per_s) +
         ",\"batch\":[" + batch + "]}";
}

std::string ToText(const BenchReport& report) {
  char line[256];
  std::string text = report.what + " on " + report.backend + "/" + report.isa + ", " +
                     std::to_string(report.threads) + " threads, " + report.places + "; " +
                     FormatSize(report.memory_bytes) + ", " + FormatSize(report.large_page_bytes) +
                     " in large pages, loaded in ";
  std::snprintf(line, sizeof(line), "%.1f s\nread bandwidth %.1f GB/s\n", report.load_s,
                report.read_bandwidth_bytes_per_s / 1e9);
  text += line;
  std::snprintf(line, sizeof(line), "prompt      %8.1f tokens/s\n", report.prompt_tokens_per_s);
  text += line;
  std::snprintf(line, sizeof(line), "generation  %8.1f tokens/s   %4.0f %% of the read bandwidth\n",
                report.generated_tokens_per_s, report.bandwidth_share * 100);
  text += line;
  for (const BenchReport::Batch& b : report.batch) {
    std::snprintf(line, sizeof(line), "batch %-5u %8.1f tokens/s   %8.2f ms a step\n", b.batch,
                  b.generated_tokens_per_s, b.step_ms);
    text += line;
  }
  return text;
}

int BenchMain(int argc, const char* const* argv, const GetEnvFn& get_env) {
  BenchOptions options;
  std::string batch = "1,2,4,8";
  std::string ranks;
  bool json = false;
  Flags flags("strata-worker bench", "STRATA_WORKER_BENCH_",
              "Measures how fast this machine computes, without a network.");
  flags.Text("model", &options.model, "A checkpoint folder to measure with");
  flags.Choice("shape", &options.shape, {"tiny11", "l321b", "l318b"},
               "Random weights of this shape, when there is no --model");
  flags.Text("layers", &options.layers, "Only layers a-b");
  flags.Choice("quantize", &options.quantize, {"none", "int8", "int4"}, "Weight format");
  flags.Choice("backend", &options.backend, {"auto", "cpu", "cuda", "mlx"}, "What computes");
  flags.Text("devices", &options.devices, kDevicesHelp);
  flags.Number("threads", &options.threads, "Threads that compute; 0: the usable cores");
  flags.Choice("pin", &options.pin, {"auto", "on", "off"}, kPinHelp);
  flags.Text("ranks", &ranks,
             "Divide the stage over ranks of this process, on the CPU, of so many threads each, as "
             "in 1,1: each has a share by its threads; in place of --threads");
  flags.Number("prompt", &options.prompt, "Tokens of the prompt");
  flags.Number("generate", &options.generate, "Tokens generated by each sequence");
  flags.Text("batch", &batch, "Numbers of sequences that generate at once");
  flags.Switch("json", &json, "One JSON document on stdout");
  if (const std::optional<int> exit = flags.Parse(argc, argv, get_env)) {
    return *exit;
  }
  if (const char* isa = get_env("STRATA_CPU_ISA"); isa != nullptr) {
    options.isa = isa;
  }
  options.batch = NumbersOf(batch);
  options.ranks = NumbersOf(ranks);
  const absl::StatusOr<BenchReport> report = RunBench(options);
  if (!report.ok()) {
    std::fprintf(stderr, "strata-worker bench: %s\n", Describe(report.status()).c_str());
    return absl::IsInvalidArgument(report.status()) ? 2 : 1;
  }
  std::printf("%s", json ? (ToJson(*report) + "\n").c_str() : ToText(*report).c_str());
  return 0;
}

}  // namespace strata
