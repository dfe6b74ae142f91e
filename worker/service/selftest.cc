#include "worker/service/selftest.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdio>
#include <memory>
#include <numeric>
#include <span>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/checkpoint/checkpoint.h"
#include "common/limits.h"
#include "common/model/numerics_class.h"
#include "common/platform/platform.h"
#include "common/status.h"
#include "worker/backend/device_choice.h"
#include "worker/backend/kinds/make_backend.h"
#include "worker/service/bench_weights.h"
#include "worker/service/worker_options.h"

namespace strata {
namespace {

constexpr uint32_t kSequences = 3;

// Token ids without a pattern.
std::vector<uint32_t> SomeIds(uint32_t count, uint32_t vocab, uint32_t seed) {
  std::vector<uint32_t> ids;
  uint32_t state = seed * 747796405u + 2891336453u;
  for (uint32_t i = 0; i < count; ++i) {
    state = state * 1664525u + 1013904223u;
    ids.push_back((state >> 8) % vocab);
  }
  return ids;
}

absl::StatusOr<ModelSpec> SpecOf(const SelftestModel& model) {
  return ParseModelConfig(
      absl::StrCat(R"({"architectures":["LlamaForCausalLM"],"model_type":"llama",)",
                   R"("hidden_act":"silu","rms_norm_eps":1e-5,"rope_theta":10000.0,)",
                   R"("tie_word_embeddings":false,"num_hidden_layers":)", model.layers,
                   ",\"hidden_size\":", model.hidden, ",\"intermediate_size\":", model.ffn,
                   ",\"num_attention_heads\":", model.heads,
                   ",\"num_key_value_heads\":", model.kv_heads, ",\"vocab_size\":", model.vocab,
                   ",\"max_position_embeddings\":", model.positions, "}"),
      "");
}

// A whole model on a backend, and a few sequences with pages of their own.
class Subject {
 public:
  static absl::StatusOr<std::unique_ptr<Subject>> Load(Backend* backend, const SelftestModel& model,
                                                       v1::Quantize quantize,
                                                       v1::Activations activations) {
    std::unique_ptr<Subject> subject(new Subject);
    StageSpec& spec = subject->spec_;
    ASSIGN_OR_RETURN(spec.model, SpecOf(model));
    spec.last_layer = model.layers - 1;
    spec.embeds = true;
    spec.heads = true;
    spec.quantize = quantize;
    spec.activations = activations;
    spec.context = model.positions;
    spec.max_batch_tokens = model.positions;
    spec.max_batch_items = kSequences;
    subject->pages_each_ = (model.positions + kPageTokens - 1) / kPageTokens;
    spec.kv_pages = {uint64_t{kSequences} * subject->pages_each_};
    subject->rotary_ = MakeRotaryTables(spec.model, spec.context);
    spec.rotary = subject->rotary_;
    const RandomWeights weights(TensorsOf(spec.model, 0, spec.last_layer, true, true));
    ASSIGN_OR_RETURN(subject->shard_, backend->Load(spec, weights, nullptr, nullptr));
    for (uint32_t s = 0; s < kSequences; ++s) {
      // In another order than that of the positions.
      std::vector<PageId>& pages = subject->pages_.emplace_back(subject->pages_each_);
      std::iota(pages.rbegin(), pages.rend(), s * subject->pages_each_);
      subject->tables_.push_back({{0, pages}});
      subject->ids_.push_back(SomeIds(model.positions, model.vocab, s));
    }
    return subject;
  }

  uint32_t positions() const { return spec_.context; }

  struct Part {
    uint32_t sequence = 0;
    uint32_t position = 0;
    uint32_t rows = 0;
  };
  // The logits of the first part's rows.
  absl::StatusOr<std::vector<float>> Step(const std::vector<Part>& parts) {
    std::vector<uint32_t> ids;
    std::vector<BatchItem> items;
    for (const Part& part : parts) {
      items.push_back(
          {static_cast<uint32_t>(ids.size()), part.rows, part.position, tables_[part.sequence]});
      const auto begin = ids_[part.sequence].begin() + part.position;
      ids.insert(ids.end(), begin, begin + part.rows);
    }
    RETURN_IF_ERROR(shard_->Begin({static_cast<uint32_t>(ids.size()), ids, items}));
    RETURN_IF_ERROR(shard_->Embed());
    for (uint32_t layer = 0; layer <= spec_.last_layer; ++layer) {
      RETURN_IF_ERROR(shard_->Attention(layer));
      RETURN_IF_ERROR(shard_->Mlp(layer));
    }
    std::vector<uint32_t> rows(parts.front().rows);
    std::iota(rows.begin(), rows.end(), 0u);
    std::vector<float> logits(rows.size() * spec_.model.vocab);
    RETURN_IF_ERROR(shard_->Head(rows));
    RETURN_IF_ERROR(shard_->ReadLogits(logits));
    return logits;
  }

  // The first sequence in parts of so many positions; beside the others, which take parts of their
  // own, where `beside`.
  absl::StatusOr<std::vector<float>> Run(uint32_t chunk, bool beside = false) {
    std::vector<float> all;
    std::vector<uint32_t> done(kSequences, 0);
    while (done[0] < positions()) {
      std::vector<Part> parts;
      for (uint32_t s = 0; s < (beside ? kSequences : 1); ++s) {
        const uint32_t most = s == 0 ? chunk : 2 * s + 1;
        const uint32_t rows = std::min(most, positions() - done[s]);
        if (rows > 0) {
          parts.push_back({s, done[s], rows});
          done[s] += rows;
        }
      }
      ASSIGN_OR_RETURN(const std::vector<float> logits, Step(parts));
      all.insert(all.end(), logits.begin(), logits.end());
    }
    return all;
  }

 private:
  Subject() = default;

  StageSpec spec_;
  std::vector<float> rotary_;
  uint32_t pages_each_ = 0;
  std::vector<std::vector<PageId>> pages_;
  std::vector<std::vector<PageTableView>> tables_;
  std::vector<std::vector<uint32_t>> ids_;
  std::unique_ptr<Shard> shard_;
};

SelftestFinding Compare(std::string what, std::span<const float> expected,
                        std::span<const float> got) {
  SelftestFinding finding{.what = std::move(what), .numbers = expected.size()};
  double largest = 0;
  double difference = 0;
  for (size_t i = 0; i < expected.size(); ++i) {
    largest = std::max<double>(largest, std::abs(expected[i]));
    if (std::bit_cast<uint32_t>(expected[i]) != std::bit_cast<uint32_t>(got[i])) {
      ++finding.different;
      difference = std::max(difference, std::abs(double{expected[i]} - got[i]));
    }
  }
  finding.largest_part = largest > 0 ? difference / largest : 0;
  return finding;
}

absl::Status CompareWays(const std::string& what, Subject* subject, SelftestReport* report) {
  ASSIGN_OR_RETURN(const std::vector<float> alone, subject->Run(1));
  const auto compare = [&](const char* way, uint32_t chunk, bool beside) -> absl::Status {
    ASSIGN_OR_RETURN(const std::vector<float> got, subject->Run(chunk, beside));
    report->findings.push_back(Compare(absl::StrCat(what, ", ", way), alone, got));
    return absl::OkStatus();
  };
  RETURN_IF_ERROR(compare("once more", 1, false));
  RETURN_IF_ERROR(compare("in chunks of 7", 7, false));
  RETURN_IF_ERROR(compare("in chunks of 64", 64, false));
  RETURN_IF_ERROR(compare("at once", subject->positions(), false));
  RETURN_IF_ERROR(compare("beside two others", 1, true));
  return compare("in chunks of 9 beside two others", 9, true);
}

struct Format {
  const char* name;
  v1::Quantize quantize;
  v1::Activations activations;
};

}  // namespace

std::vector<SelftestModel> SelftestModels() {
  return {{.name = "wide",
           .hidden = 2048,
           .ffn = 5632,
           .heads = 32,
           .kv_heads = 4,
           .vocab = 1024,
           .positions = 48},
          {.name = "long",
           .hidden = 256,
           .ffn = 512,
           .heads = 4,
           .kv_heads = 2,
           .vocab = 64,
           .positions = 1100}};
}

bool SelftestReport::AllSame() const {
  return std::all_of(findings.begin(), findings.end(),
                     [](const SelftestFinding& finding) { return finding.different == 0; });
}

absl::StatusOr<SelftestReport> RunSelftest(Backend* backend,
                                           const std::vector<SelftestModel>& models) {
  SelftestReport report{.backend = backend->name(),
                        .numerics = backend->numerics(),
                        .device = backend->facts(),
                        .findings = {}};
  std::vector<Format> formats = {
      {"floats", v1::QUANTIZE_NONE, v1::ACTIVATIONS_F32},
      {"int8", v1::QUANTIZE_INT8, v1::ACTIVATIONS_F32},
      {"int4", v1::QUANTIZE_INT4, v1::ACTIVATIONS_F32},
  };
  if (TakesInt8Activations(backend->numerics())) {
    formats.push_back({"int4 by int8", v1::QUANTIZE_INT4, v1::ACTIVATIONS_INT8});
  }
  for (const SelftestModel& model : models) {
    for (const Format& format : formats) {
      auto subject = Subject::Load(backend, model, format.quantize, format.activations);
      if (ReasonOf(subject.status()) == "BACKEND_UNSUPPORTED") {
        continue;
      }
      RETURN_IF_ERROR(subject.status());
      RETURN_IF_ERROR(
          CompareWays(absl::StrCat(model.name, " ", format.name), subject->get(), &report));
    }
  }
  return report;
}

std::string ToText(const SelftestReport& report) {
  std::string text = absl::StrCat("backend   ", report.backend, "\nnumerics  ", report.numerics,
                                  "\ndevice    ", report.device.name, " (", report.device.kind,
                                  ")\nplatform  ", PlatformName(), "\n");
  for (const SelftestFinding& finding : report.findings) {
    char line[160];
    if (finding.different == 0) {
      std::snprintf(line, sizeof(line), "%-48s same bits\n", finding.what.c_str());
    } else {
      std::snprintf(line, sizeof(line), "%-48s %llu of %llu differ, by up to %.2g of the largest\n",
                    finding.what.c_str(), static_cast<unsigned long long>(finding.different),
                    static_cast<unsigned long long>(finding.numbers), finding.largest_part);
    }
    text += line;
  }
  text +=
      report.AllSame()
          ? "All as one position after another.\n"
          : "What differs is no numerics class: answers would depend on what is computed beside "
            "them. Please send this, with the version of the operating system.\n";
  return text;
}

int SelftestMain(int argc, const char* const* argv, const GetEnvFn& get_env) {
  std::string name = "auto";
  KindOptions options;
  std::string devices;
  uint64_t threads = 0;
  Flags flags("strata-worker selftest", "STRATA_WORKER_SELFTEST_",
              "Computes made-up models in parts of several sizes, and compares the bits.");
  flags.Choice("backend", &name, {"auto", "cpu", "cuda", "mlx"}, "What computes");
  flags.Text("devices", &devices, kDevicesHelp);
  flags.Number("threads", &threads, "Threads that compute; 0: the usable cores");
  if (const std::optional<int> exit = flags.Parse(argc, argv, get_env)) {
    return *exit;
  }
  options.cpu.threads = static_cast<uint32_t>(threads);
  const auto report = [&]() -> absl::StatusOr<SelftestReport> {
    ASSIGN_OR_RETURN(options.devices.choice, ParseDevices(devices));
    ASSIGN_OR_RETURN(const std::unique_ptr<Backend> backend, MakeBackend(name, options));
    return RunSelftest(backend.get(), SelftestModels());
  }();
  if (!report.ok()) {
    std::fprintf(stderr, "strata-worker selftest: %s\n", Describe(report.status()).c_str());
    const std::string reason = ReasonOf(report.status());
    const bool absent = reason == "BACKEND_ABSENT" || reason == "DEVICE_ABSENT" ||
                        reason == "NCCL_ABSENT" || reason == "NCCL_TOO_OLD";
    return absent || absl::IsInvalidArgument(report.status()) ? 2 : 1;
  }
  std::printf("%s", ToText(*report).c_str());
  return report->AllSame() ? 0 : 1;
}

}  // namespace strata
