#include "common/report/model_report.h"

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/units.h"

namespace strata {
namespace {

// Kinds of layers that are told apart, and runs of layers that are named, before it gets long.
constexpr size_t kMostKinds = 8;
constexpr size_t kMostRuns = 4;

std::string Counted(uint64_t n, const char* what) {
  return absl::StrCat(n, " ", what, n == 1 ? "" : "s");
}

std::string Line(const std::string& what, const std::string& text) {
  constexpr size_t kColumn = 12;
  return absl::StrCat("  ", what, std::string(kColumn - std::min(kColumn, what.size()), ' '), " ",
                      text, "\n");
}

// Layers that are alike.
struct Kind {
  const v1::LayerFacts* facts = nullptr;
  std::vector<std::pair<int, int>> runs;  // First and last.
  int layers = 0;
};

bool Alike(const v1::LayerFacts& a, const v1::LayerFacts& b) {
  return a.weight_bytes() == b.weight_bytes() && a.weight_bytes_int8() == b.weight_bytes_int8() &&
         a.weight_bytes_int4() == b.weight_bytes_int4() &&
         a.kv_bytes_per_token() == b.kv_bytes_per_token() && a.kv_group() == b.kv_group() &&
         a.experts() == b.experts() && a.experts_per_token() == b.experts_per_token();
}

std::vector<Kind> KindsOf(const v1::ModelFacts& facts) {
  std::vector<Kind> kinds;
  for (int i = 0; i < facts.layers_size(); ++i) {
    auto kind = std::find_if(kinds.begin(), kinds.end(),
                             [&](const Kind& one) { return Alike(*one.facts, facts.layers(i)); });
    if (kind == kinds.end()) {
      kind = kinds.insert(kinds.end(), Kind{&facts.layers(i), {}, 0});
    }
    ++kind->layers;
    if (!kind->runs.empty() && kind->runs.back().second + 1 == i) {
      kind->runs.back().second = i;
    } else {
      kind->runs.emplace_back(i, i);
    }
  }
  return kinds;
}

// "0-2", "0, 2, 4, ..., 34".
std::string RunsText(const std::vector<std::pair<int, int>>& runs) {
  std::string text;
  for (size_t i = 0; i < runs.size(); ++i) {
    const bool left_out = runs.size() > kMostRuns && i >= kMostRuns - 1 && i + 1 < runs.size();
    if (left_out) {
      i = runs.size() - 2;
      absl::StrAppend(&text, ", ...");
      continue;
    }
    const auto [first, last] = runs[i];
    absl::StrAppend(&text, text.empty() ? "" : ", ", first);
    if (last != first) {
      absl::StrAppend(&text, "-", last);
    }
  }
  return text;
}

// "3.2 GiB (int8 1.7 GiB, int4 1.0 GiB)": what is refused is left out.
std::string MemoryText(uint64_t stored, uint64_t int8, uint64_t int4) {
  std::string text = FormatSize(stored);
  if (int8 != 0 && int4 != 0) {
    absl::StrAppend(&text, " (int8 ", FormatSize(int8), ", int4 ", FormatSize(int4), ")");
  }
  return text;
}

std::string KindText(const Kind& kind) {
  const v1::LayerFacts& layer = *kind.facts;
  std::string text = absl::StrCat(
      kind.layers, " (", RunsText(kind.runs), "): ",
      MemoryText(layer.weight_bytes(), layer.weight_bytes_int8(), layer.weight_bytes_int4()));
  if (layer.experts() != 0) {
    absl::StrAppend(&text, ", ", layer.experts_per_token(), " of ",
                    Counted(layer.experts(), "expert"), " a token");
  }
  absl::StrAppend(&text, "; KV ", layer.kv_group(), ", ", FormatSize(layer.kv_bytes_per_token()),
                  " a token");
  return text;
}

std::string FormatsText(const v1::ModelFacts& facts) {
  std::string text;
  for (const v1::StoredFormat& format : facts.formats()) {
    absl::StrAppend(&text, text.empty() ? ": " : "; ", format.name(), ", ",
                    Counted(format.tensors(), "tensor"), " of ", FormatSize(format.bytes()));
  }
  return facts.container() + text;
}

std::string FactsText(const v1::Model& model) {
  const v1::ModelFacts& facts = model.facts();
  std::string text = Line("files", FormatsText(facts));
  text += Line("weights", MemoryText(facts.weight_bytes_none(), facts.weight_bytes_int8(),
                                     facts.weight_bytes_int4()) +
                              " in memory");
  const std::vector<Kind> kinds = KindsOf(facts);
  for (size_t i = 0; i < std::min(kinds.size(), kMostKinds); ++i) {
    text += Line(i == 0 ? "layers" : "", KindText(kinds[i]));
  }
  if (kinds.size() > kMostKinds) {
    text += Line("", absl::StrCat("and ", kinds.size() - kMostKinds, " kinds more (--json)"));
  }
  text += Line("ends", absl::StrCat("embedding ", FormatSize(facts.embedding_bytes()), ", head ",
                                    FormatSize(facts.head_bytes())));
  text += Line("KV", FormatSize(model.kv_bytes_per_token()) + " a token at float16");
  text += Line("tokenizer",
               facts.tokenizer().empty()
                   ? "none: token ids only"
                   : absl::StrCat(facts.tokenizer(), ", ", Counted(facts.tokenizer_ids(), "id")));
  text += Line("template", facts.chat_template().empty() ? "none" : facts.chat_template());
  return text;
}

}  // namespace

std::string ModelReport(const v1::Model& model) {
  std::string text =
      Line("shape", absl::StrCat(model.family(), ", ", Counted(model.layers(), "layer"),
                                 ", hidden ", model.hidden_size(), ", vocabulary ",
                                 model.vocab_size(), ", context ", model.context()));
  if (model.has_facts()) {
    text += FactsText(model);
  } else {
    text += Line("weights", absl::StrCat(FormatSize(model.weight_bytes()), " as ", model.dtype()));
    text += Line("KV", FormatSize(model.kv_bytes_per_token()) + " a token at float16");
    text += Line(
        "text", absl::StrCat(model.has_tokenizer() ? "tokenizer" : "no tokenizer: token ids only",
                             model.has_chat_template() ? ", chat template" : ", no chat template"));
  }
  for (const std::string& note : model.notes()) {
    text += Line("note", note);
  }
  for (const std::string& sentence : model.facts().cannot()) {
    text += Line("cannot", sentence);
  }
  return text;
}

}  // namespace strata
