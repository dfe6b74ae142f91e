#include "coordinator/service/request/model_facts.h"

#include <algorithm>
#include <initializer_list>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/checkpoint/checkpoint.h"
#include "common/model/block_formats.h"
#include "common/model/gpt_oss_experts.h"
#include "common/status.h"
#include "coordinator/registry/tokenizer_file.h"

namespace strata {
namespace {

// ", groups of 64"; of one group, that all inputs of an output share a scale.
std::string Groups(uint64_t group) {
  return group == 0 ? ", a scale for each output" : absl::StrCat(", groups of ", group);
}

// Of what a scale is for, ", a scale for each output".
std::string Blocks(const StoredScheme& scheme) {
  const bool all = scheme.block_outputs == 0 && scheme.block_inputs == 0;
  const bool output = scheme.block_outputs == 1 && scheme.block_inputs == 0;
  return all      ? ", one scale"
         : output ? ", a scale for each output"
         : scheme.block_outputs == 1
             ? Groups(scheme.block_inputs)
             : absl::StrCat(", blocks of ", scheme.block_outputs, " x ", scheme.block_inputs);
}

// How a matrix of a format that config.json names is stored, as people call it.
std::string NameOf(const StoredMatrix& matrix) {
  const StoredScheme& scheme = matrix.scheme;
  const auto integers = [&](const char* name) {
    return absl::StrCat(name, " int", scheme.integers.bits, Groups(scheme.integers.group),
                        scheme.has_order ? ", inputs in order of activation" : "");
  };
  switch (scheme.method) {
    case QuantizationMethod::kMlx:
      return absl::StrCat("int", scheme.integers.bits, " affine", Groups(scheme.integers.group));
    case QuantizationMethod::kAwq:
      return integers("AWQ");
    case QuantizationMethod::kGptq:
      return integers("GPTQ");
    case QuantizationMethod::kPacked:
      return integers("pack-quantized");
    case QuantizationMethod::kIntegers:
      return absl::StrCat("int-quantized int", scheme.integers.bits, Blocks(scheme));
    case QuantizationMethod::kFloat8:
      return absl::StrCat("FP8 (E4M3)", Blocks(scheme));
    case QuantizationMethod::kMlxMxfp8:
      return "MXFP8";
    case QuantizationMethod::kMxfp4:
    case QuantizationMethod::kMlxMxfp4:
      return "MXFP4";
    case QuantizationMethod::kNvfp4:
    case QuantizationMethod::kMlxNvfp4:
      return "NVFP4";
    case QuantizationMethod::kModelOpt:
      return matrix.kind == StoredCodes::kFloat4 ? "NVFP4" : "FP8 (E4M3), one scale";
    case QuantizationMethod::kBitsAndBytes:
      return matrix.kind == StoredCodes::kSigned
                 ? "bitsandbytes int8"
                 : absl::StrCat("bitsandbytes ", StoredFormatName(matrix),
                                matrix.nested_scales.name.empty() ? "" : ", double quantization");
  }
  return "";
}

// Of the tensor with a matrix's weights, or of one that is no part of a matrix.
std::string FormatName(const ModelManifest& m, const StageTensor& tensor, Dtype dtype) {
  if (tensor.matrix.has_value()) {
    return NameOf(*tensor.matrix);
  }
  if (dtype == Dtype::kU32 && m.spec.quantization.has_value()) {
    uint32_t bits = 0;
    uint32_t group = 0;
    const std::string name = StoredFormat(m.spec, tensor, dtype);
    if (std::sscanf(name.c_str(), "affine%ug%u", &bits, &group) == 2) {
      return absl::StrCat("int", bits, " affine", Groups(group));
    }
  }
  return DtypeName(LoadedDtype(tensor.name, dtype));
}

bool IsAffinePart(std::string_view name) {
  return name.ends_with(".scales") || name.ends_with(".biases");
}

// All tensors that the model uses, by the format of the matrix that each belongs to; which of these
// formats workers have no form for but float32; and those of integers that they keep in more bits.
struct Formats {
  std::vector<v1::StoredFormat> stored;
  std::set<std::string> kept_as_floats;
  std::map<std::string, uint32_t> kept_in_bits;
};

void AddWidened(const StageTensor& tensor, const std::string& format, Formats* formats) {
  if (!tensor.matrix.has_value() || tensor.matrix->as_floats) {
    return;
  }
  const KeptForm kept = tensor.matrix->Kept();
  if (kept.kind == KeptForm::Kind::kFloats) {
    formats->kept_as_floats.insert(format);
  } else if (kept.kind == KeptForm::Kind::kIntegers && kept.bits > tensor.matrix->bits) {
    formats->kept_in_bits[format] = kept.bits;
  }
}

Formats FormatsOf(const ModelManifest& m) {
  Formats formats;
  std::map<std::string, v1::StoredFormat> by_name;
  std::string of_matrix;
  const auto last = static_cast<uint32_t>(m.spec.layers.size()) - 1;
  for (const StageTensor& tensor : TensorsOf(m.spec, 0, last, true, true, m.Exists())) {
    const ManifestTensor* found = m.FindTensor(tensor.name);
    if (found == nullptr) {
      continue;
    }
    const bool part = tensor.part || IsMxfp4Scales(tensor.name) || IsAffinePart(tensor.name);
    if (!part) {
      of_matrix = FormatName(m, tensor, found->dtype);
      AddWidened(tensor, of_matrix, &formats);
      if (IsBlocks(found->dtype) && KeptBits(found->dtype) > StoredBits(found->dtype)) {
        formats.kept_in_bits[of_matrix] = KeptBits(found->dtype);
      }
    }
    v1::StoredFormat& format = by_name[of_matrix];
    format.set_tensors(format.tensors() + 1);
    format.set_bytes(format.bytes() + found->bytes);
  }
  for (auto& [name, format] : by_name) {
    format.set_name(name);
    formats.stored.push_back(std::move(format));
  }
  std::stable_sort(formats.stored.begin(), formats.stored.end(),
                   [](const auto& a, const auto& b) { return a.bytes() > b.bytes(); });
  return formats;
}

std::string GgufOf(const ModelManifest& m) {
  const auto gguf = std::find_if(m.files.begin(), m.files.end(), [](const ManifestFile& file) {
    return absl::EndsWith(file.name, ".gguf");
  });
  return gguf == m.files.end() ? "" : gguf->name;
}

std::string TokenizerText(const ModelRuntime& model) {
  if (model.tokenizer == nullptr) {
    return "";
  }
  std::vector<std::string> names;
  for (const ManifestFile& file : model.manifest->files) {
    names.push_back(file.name);
  }
  const std::string file = TokenizerFileOf(names);
  return absl::StrCat(model.tokenizer->kind(), " (", file.empty() ? GgufOf(*model.manifest) : file,
                      ")");
}

// Conversations that templates often refuse, or leave parts of out.
class Probe {
 public:
  explicit Probe(const ModelRuntime& model) : model_(model) {}

  std::vector<std::string> Findings() {
    if (!Renders({{"user", "Hello"}}, "a message of a user")) {
      return std::move(findings_);
    }
    constexpr char kSystem[] = "Answer in verse";
    constexpr char kAnswer[] = "Forty-two";
    if (Renders({{"system", kSystem}, {"user", "Hello"}}, "a system message")) {
      Expect(kSystem, "system messages");
    }
    if (Renders({{"user", "Hello"}, {"assistant", kAnswer}, {"user", "Why?"}},
                "a conversation of several messages")) {
      Expect(kAnswer, "earlier answers");
    }
    return std::move(findings_);
  }

 private:
  using Messages = std::initializer_list<std::pair<const char*, const char*>>;

  bool Renders(const Messages& messages, const char* what) {
    v1::ChatInput chat;
    for (const auto& [role, content] : messages) {
      v1::ChatMessage* message = chat.add_messages();
      message->set_role(role);
      message->set_content(content);
    }
    const auto rendered = model_.RenderChat(chat, 0);
    if (!rendered.ok()) {
      std::string reason(rendered.status().message());
      std::replace(reason.begin(), reason.end(), '\n', ' ');
      findings_.push_back(absl::StrCat("its chat template refuses ", what, ": ", reason));
      return false;
    }
    rendered_ = *rendered;
    return true;
  }
  void Expect(const char* text, const char* what) {
    if (rendered_.find(text) == std::string::npos) {
      findings_.push_back(absl::StrCat("its chat template leaves ", what, " out"));
    }
  }

  const ModelRuntime& model_;
  std::string rendered_;
  std::vector<std::string> findings_;
};

void AddText(const ModelRuntime& model, v1::ModelFacts* facts) {
  const uint32_t vocab = model.spec().vocab;
  if (model.tokenizer == nullptr) {
    facts->add_cannot(Describe(model.tokenizer_problem));
  } else if (model.tokenizer->vocab_size() > vocab) {
    facts->add_cannot(absl::StrCat("its tokenizer has ", model.tokenizer->vocab_size(),
                                   " ids and its weights have ", vocab,
                                   ": a text with one that is past them is refused"));
  }
  if (model.chat_template == nullptr) {
    facts->add_cannot(Describe(model.template_problem));
  } else {
    for (std::string& finding : Probe(model).Findings()) {
      facts->add_cannot(std::move(finding));
    }
  }
  if (model.spec().eos_ids.empty()) {
    facts->add_cannot(
        "no token ends its answers, since no eos_token_id is named: max_tokens and stop strings "
        "do");
  }
}

void AddWeights(const StoredKinds& kinds, const Formats& formats, v1::ModelFacts* facts) {
  if (!kinds.quantizable) {
    facts->add_cannot(
        "its weights are stored quantized and cannot be quantized again: --quantize int8 and int4 "
        "are refused");
  } else if (kinds.integers) {
    facts->add_cannot(
        "what is stored as integers stays so: --quantize int8 and int4 change its matrices of "
        "floats alone");
  }
  for (const std::string& name : formats.kept_as_floats) {
    facts->add_cannot(absl::StrCat(
        "its matrices in ", name, " are kept as float32, 4 bytes a weight, since workers have no ",
        "such format",
        kinds.quantizable ? "; --quantize int8 or int4 makes less of them, with a second rounding"
                          : ""));
  }
  for (const auto& [name, bits] : formats.kept_in_bits) {
    facts->add_cannot(absl::StrCat("its matrices in ", name, " are kept in ", bits,
                                   " bits, exactly, since workers have no smaller form for them"));
  }
}

void AddLimits(const ModelManifest& m, v1::ModelFacts* facts) {
  facts->add_cannot(
      absl::StrCat("a request has ", m.spec.context, " tokens at most, its answer included"));
  if (const uint32_t above = LongRotaryAbove(m.spec); above != 0 && above < m.spec.context) {
    facts->add_cannot(absl::StrCat(
        "a request without max_tokens ends at ", above,
        " tokens, where its first rotation does; one that may become longer has the rotation of ",
        "long ones from its first token on"));
  }
  if (std::any_of(m.spec.kv_groups.begin(), m.spec.kv_groups.end(),
                  [](const KvGroupSpec& group) { return group.kind == KvKind::kWindow; })) {
    facts->add_cannot("its requests share no cached prefixes, since layers keep a window's KV");
  }
  if (!m.spec.tensor_prefix.empty()) {
    facts->add_cannot("its language model alone is loaded: it takes no images and no sound");
  }
}

}  // namespace

v1::ModelFacts FactsOf(const ModelRuntime& model) {
  const ModelManifest& m = *model.manifest;
  v1::ModelFacts facts;
  facts.set_container(GgufOf(m).empty() ? "safetensors" : "gguf");
  const Formats formats = FormatsOf(m);
  for (const v1::StoredFormat& format : formats.stored) {
    *facts.add_formats() = format;
  }
  facts.set_tokenizer(TokenizerText(model));
  facts.set_tokenizer_ids(model.tokenizer == nullptr ? 0 : model.tokenizer->vocab_size());
  facts.set_chat_template(model.chat_template == nullptr ? "" : m.chat_template_file);
  const StoredKinds kinds = StoredKindsOf(m);
  const WeightAccount none = AccountWeights(m);
  for (uint32_t i = 0; i < m.spec.layers.size(); ++i) {
    const LayerSpec& layer = m.spec.layers[i];
    v1::LayerFacts* out = facts.add_layers();
    out->set_weight_bytes(none.layer_bytes[i]);
    out->set_kv_bytes_per_token(
        KvBytesPerToken(m.spec, i, i, layer.attention.kv_group, sizeof(uint16_t)));
    out->set_kv_group(KvGroupName(m.spec.kv_groups[layer.attention.kv_group]));
    out->set_experts(layer.mlp.experts);
    out->set_experts_per_token(layer.mlp.experts == 0 ? 0 : layer.mlp.router.used);
  }
  facts.set_embedding_bytes(none.embed_bytes);
  facts.set_head_bytes(none.head_bytes);
  facts.set_weight_bytes_none(none.total_bytes);
  if (kinds.quantizable) {
    const WeightAccount int8 = AccountWeights(m, v1::QUANTIZE_INT8);
    const WeightAccount int4 = AccountWeights(m, v1::QUANTIZE_INT4);
    for (int i = 0; i < facts.layers_size(); ++i) {
      facts.mutable_layers(i)->set_weight_bytes_int8(int8.layer_bytes[static_cast<size_t>(i)]);
      facts.mutable_layers(i)->set_weight_bytes_int4(int4.layer_bytes[static_cast<size_t>(i)]);
    }
    facts.set_weight_bytes_int8(int8.total_bytes);
    facts.set_weight_bytes_int4(int4.total_bytes);
  }
  AddText(model, &facts);
  AddWeights(kinds, formats, &facts);
  AddLimits(m, &facts);
  return facts;
}

}  // namespace strata
