// Single mutations of the headers of golden GGUF files, field by field: each loads as what the
// header then says, and computes what the original does where that is the same; or is refused by a
// sentence that names the key or tensor.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>
#include <memory>
#include <optional>
#include <random>

#include "common/status.h"
#include "coordinator/registry/gguf_text.h"
#include "coordinator/tokenizer/tokenizer.h"
#include "tests/common/checkpoint/made_checkpoint.h"
#include "tests/cost.h"
#include "tests/golden.h"
#include "tests/mutations/facts.h"
#include "tests/mutations/loaded.h"
#include "tests/mutations/remade_gguf.h"
#include "tests/worker/backend/golden_model.h"

namespace strata::testing {
namespace {

constexpr int kEach = 110;
constexpr double kMostSeconds = 1;
constexpr uint64_t kMostBytes = uint64_t{16} << 20;

struct Field {
  size_t at = 0;
  size_t bytes = 0;
  std::string owner;  // The key or tensor; "" for what is of the whole file.
  std::string what;   // "value", "type", "count", "length", "name", ...
  uint64_t type = 0;  // Of a value: ggml's number.
};

// Where the fields of a header are: a reader of its own, of files that are right.
class Fields {
 public:
  explicit Fields(const std::string& file) : file_(file) {
    Add(4, "", "magic");
    Add(4, "", "version");
    const uint64_t tensors = Add(8, "", "count of tensors");
    const uint64_t values = Add(8, "", "count of keys");
    for (uint64_t i = 0; i < values; ++i) Key();
    for (uint64_t i = 0; i < tensors; ++i) Tensor();
  }
  const std::vector<Field>& all() const { return fields_; }
  size_t end() const { return at_; }

 private:
  uint64_t Peek(size_t at, size_t bytes) const {
    uint64_t number = 0;
    std::memcpy(&number, file_.data() + at, std::min<size_t>(bytes, 8));
    return number;
  }
  uint64_t Add(size_t bytes, const std::string& owner, const std::string& what) {
    fields_.push_back({at_, bytes, owner, what});
    at_ += bytes;
    return Peek(at_ - bytes, bytes);
  }
  std::string Name() {
    const uint64_t length = Peek(at_, 8);
    std::string name = file_.substr(at_ + 8, length);
    Add(8, name, "length of the name");
    Add(length, name, "name");
    return name;
  }
  void Value(const std::string& key, uint64_t type) {
    constexpr size_t kSizes[] = {1, 1, 2, 2, 4, 4, 4, 1, 0, 0, 8, 8, 8};
    if (type == 8) {
      const uint64_t length = Add(8, key, "length of the value");
      if (length > 0) Add(length, key, "value");
    } else {
      Add(kSizes[type], key, "value");
    }
    fields_.back().type = type;
  }
  void Key() {
    const std::string key = Name();
    uint64_t type = Add(4, key, "type");
    if (type != 9) {
      Value(key, type);
      return;
    }
    type = Add(4, key, "type of the list");
    const uint64_t count = Add(8, key, "count of the list");
    const size_t before = fields_.size();
    for (uint64_t i = 0; i < count; ++i) Value(key, type);
    // A few of a long list, so that it does not win by its length.
    if (fields_.size() > before + 4) fields_.resize(before + 4);
  }
  void Tensor() {
    const std::string name = Name();
    const uint64_t rank = Add(4, name, "rank");
    for (uint64_t i = 0; i < rank; ++i) Add(8, name, "dimension");
    Add(4, name, "dtype");
    Add(8, name, "offset");
  }

  const std::string& file_;
  size_t at_ = 0;
  std::vector<Field> fields_;
};

// A number that a file has at a field, if it is one.
std::optional<double> NumberAt(const std::string& file, const Field& field) {
  const char* at = file.data() + field.at;
  const auto read = [&](auto number) {
    std::memcpy(&number, at, sizeof(number));
    return static_cast<double>(number);
  };
  switch (field.type) {
    case 4:
      return read(uint32_t{0});
    case 5:
      return read(int32_t{0});
    case 6:
      return read(0.0f);
    case 10:
      return read(uint64_t{0});
    default:
      return std::nullopt;
  }
}

// Facts that a key decides: of layers those that have what the key said before.
struct Meaning {
  const char* key;
  std::vector<const char*> of_layers;
  std::vector<const char*> of_model;
};
const Meaning kMeanings[] = {{"rope.freq_base", {"rope.theta"}, {}},
                             {"rope.freq_base_swa", {"rope.theta"}, {}},
                             {"rope.dimension_count", {"rope.dim"}, {}},
                             {"layer_norm_rms_epsilon", {"norm_eps"}, {"final_norm_eps"}},
                             {".context_length", {}, {"context"}},
                             {"rope.scaling.attn_factor", {"rope.magnitude"}, {}},
                             {"attention.sliding_window", {"window"}, {}},
                             {"attn_logit_softcapping", {"soft_cap"}, {}},
                             {"final_logit_softcapping", {}, {"final_soft_cap"}},
                             {"expert_used_count", {"router.used"}, {}},
                             {"attention.scale", {"scale"}, {}},
                             {"embedding_scale", {}, {"embedding_scale", "input_embedding_scale"}},
                             {"residual_scale", {"branch_scale"}, {}},
                             {"logit_scale", {}, {"logits_divisor"}},
                             {"ggml.bos_token_id", {}, {"bos"}}};

// Keys whose 0 is as if they were not there.
bool IsScale(const Field& field) {
  for (const char* key : {"attention.scale", "embedding_scale", "residual_scale", "logit_scale"}) {
    if (field.owner.ends_with(key)) return true;
  }
  return false;
}

std::vector<std::string> LayersWith(const Wanted& wanted, const char* name, double value) {
  std::vector<std::string> layers;
  for (uint64_t i = 0; i < wanted.layers(); ++i) {
    if (wanted.facts.at(FactOfLayer(i, name)) == value) layers.push_back(FactOfLayer(i, ""));
  }
  return layers;
}

// What keys of scaling decide where the file is scaled, and what follows from it.
void AddScaling(const Field& field, std::optional<double> number, Wanted* wanted) {
  const double linear = static_cast<double>(RopeScaling::kLinear);
  const auto has = [&](RopeScaling scaling) {
    return !LayersWith(*wanted, "rope.scaling", static_cast<double>(scaling)).empty();
  };
  const bool yarn = has(RopeScaling::kYarn);
  const bool scales = number && *number != 0 && *number != 1;
  if (field.owner.ends_with("rope.scaling.factor") && scales) {
    if (!yarn && !has(RopeScaling::kLinear)) wanted->SetInLayers("rope.scaling", linear);
    if (yarn) {
      wanted->SetInLayers("rope.factor", *number);
    } else {
      for (const std::string& layer : LayersWith(*wanted, "rope.scaling", linear)) {
        wanted->facts[layer + "rope.factor"] = *number;
      }
    }
    wanted->open.insert("rope.magnitude");
  } else if ((yarn || has(RopeScaling::kLinear)) && (field.owner.ends_with("rope.scaling.factor") ||
                                                     field.owner.ends_with("rope.scaling.type"))) {
    wanted->open.insert("rope");
  } else if (yarn && (field.owner.find("yarn_beta") != std::string::npos ||
                      field.owner.ends_with("rope.freq_base"))) {
    wanted->open.insert({"rope.yarn_low", "rope.yarn_high"});
  } else if (field.owner.ends_with("original_context_length") &&
             (yarn || has(RopeScaling::kLongRope))) {
    wanted->open.insert({"rope.yarn_low", "rope.yarn_high"});
    number ? wanted->SetInLayers("rope.original", *number)
           : void(wanted->open.insert("rope.original"));
  }
}

// What the spec must be once the field is changed from what it is in `valid_file` to what it is in
// `file`. Keys that are not known to mean anything mean nothing; those of sizes contradict the
// tensors.
Wanted WantedOf(const Facts& valid, const Field& field, const std::string& valid_file,
                const std::string& file) {
  Wanted wanted{valid, {}};
  const bool whole = field.what == "value";
  auto number = whole ? NumberAt(file, field) : std::nullopt;
  if (IsScale(field) && number.value_or(0) == 0) number = std::nullopt;
  for (const Meaning& meaning : kMeanings) {
    if (!field.owner.ends_with(meaning.key)) continue;
    for (const char* name : meaning.of_layers) {
      if (!number) {
        wanted.open.insert(name);
        continue;
      }
      const double before = *NumberAt(valid_file, field);
      for (uint64_t i = 0; i < wanted.layers(); ++i) {
        double& fact = wanted.facts.at(FactOfLayer(i, name));
        if (static_cast<float>(fact) == static_cast<float>(before)) fact = *number;
      }
    }
    for (const char* name : meaning.of_model) {
      number ? void(wanted.facts[name] = *number) : void(wanted.open.insert(name));
    }
  }
  for (const char* end : {"ggml.eos_token_id", "ggml.eot_token_id", "ggml.eom_token_id"}) {
    if (field.owner.ends_with(end)) wanted.open.insert("eos");
  }
  // Without a window, or with another order of them, layers are of the other kind.
  if (field.owner.ends_with("sliding_window_pattern") ||
      (field.owner.ends_with("sliding_window") && number.value_or(0) == 0)) {
    wanted.open.insert({"window", "kept_by", "rope"});
  }
  // A window as long as the context is none.
  for (uint64_t i = 0; i < wanted.layers(); ++i) {
    double& window = wanted.facts.at(FactOfLayer(i, "window"));
    if (window != 0 && window >= wanted.facts.at("context")) {
      window = 0;
      wanted.facts.at(FactOfLayer(i, "kept_by")) = static_cast<double>(KvKind::kFull);
    }
  }
  AddScaling(field, number, &wanted);
  return wanted;
}

// The checkpoint's names that a tensor of these files may have, which is what is said of it once it
// is read.
std::vector<std::string> CheckpointNames(const std::string& tensor) {
  constexpr std::pair<const char*, const char*> kNames[] = {
      {"token_embd", "model.embed_tokens"},
      {"output_norm", "model.norm"},
      {"output", "lm_head"},
      {"attn_norm", "input_layernorm"},
      {"ffn_norm", "post_attention_layernorm"},
      {"ffn_norm", "pre_feedforward_layernorm"},
      {"post_attention_norm", "post_attention_layernorm"},
      {"post_ffw_norm", "post_feedforward_layernorm"},
      {"attn_q", "self_attn.q_proj"},
      {"attn_k", "self_attn.k_proj"},
      {"attn_v", "self_attn.v_proj"},
      {"attn_qkv", "self_attn.qkv_proj"},
      {"attn_output", "self_attn.o_proj"},
      {"attn_q_norm", "self_attn.q_norm"},
      {"attn_k_norm", "self_attn.k_norm"},
      {"attn_sinks", "self_attn.sinks"},
      {"ffn_gate", "mlp.gate_proj"},
      {"ffn_up", "mlp.up_proj"},
      {"ffn_up", "mlp.gate_up_proj"},
      {"ffn_down", "mlp.down_proj"},
      {"ffn_gate_inp", "mlp.gate"},
      {"ffn_gate_inp", "mlp.router"},
      {"ffn_gate_inp", "block_sparse_moe.gate"}};
  const size_t kind = tensor.rfind('.');
  const size_t begin = tensor.starts_with("blk.") ? tensor.find('.', 4) + 1 : 0;
  std::vector<std::string> names;
  if (kind == tensor.npos || kind < begin) {
    return names;
  }
  for (const auto& [gguf, name] : kNames) {
    if (tensor.substr(begin, kind - begin) == gguf) {
      names.push_back((begin == 0 ? "" : "model.layers." + tensor.substr(4, begin - 4)) + name +
                      tensor.substr(kind));
    }
  }
  return names;
}

// Names under which the header's keys are known behind it, as config.json has them.
std::vector<std::string> NamesOf(const Field& field) {
  constexpr std::pair<const char*, const char*> kConfig[] = {
      {"embedding_length", "hidden_size"},
      {"block_count", "num_hidden_layers"},
      {"feed_forward_length", "intermediate_size"},
      {"attention.head_count", "num_attention_heads"},
      {"attention.head_count", "head_dim"},
      {"attn_logit_softcapping", "attn_logit_softcapping"},
      {"final_logit_softcapping", "final_logit_softcapping"},
      {"attention.scale", "attention_multiplier"},
      {"embedding_scale", "embedding_multiplier"},
      {"residual_scale", "residual_multiplier"},
      {"logit_scale", "logits_scaling"},
      {"attention.head_count_kv", "num_key_value_heads"},
      {"attention.key_length", "head_dim"},
      {"layer_norm_rms_epsilon", "rms_norm_eps"},
      {"context_length", "max_position_embeddings"},
      {"rope.freq_base", "rope_theta"},
      {"rope.freq_base_swa", "rope_local_base_freq"},
      {"rope.dimension_count", "short_factor"},
      {"rope.scaling.factor", "factor"},
      {"rope.scaling.attn_factor", "attention_factor"},
      {"rope.scaling.original_context_length", "original_max_position_embeddings"},
      {"rope.scaling.yarn_beta_fast", "beta_fast"},
      {"rope.scaling.yarn_beta_slow", "beta_slow"},
      {"attention.sliding_window", "sliding_window"},
      {"expert_count", "experts"},
      {"expert_used_count", "num_experts_per_tok"},
      {"expert_feed_forward_length", "intermediate_size"}};
  std::vector<std::string> names = CheckpointNames(field.owner);
  if (!field.owner.empty()) names.push_back(field.owner);
  for (const auto& [key, name] : kConfig) {
    if (field.owner.ends_with(key)) names.emplace_back(name);
  }
  // Another architecture's keys are not there, or its tensors are others.
  if (field.owner == "general.architecture") {
    names.insert(names.end(), {"attention.head_count", "embedding_length", "tensor \""});
  }
  // What stands behind a wrong length is read as something else; a name or type that is wrong is
  // named as it is.
  if (field.owner.empty() || field.what != "value") {
    names.insert(names.end(), {"key \"", "tensor \"", "a key", "a tensor's name", "the version",
                               "counts", "begin with GGUF", "is of version", "is big-endian"});
  }
  return names;
}

std::string Change(const std::string& file, const Field& field, std::mt19937_64* random) {
  std::string changed = file;
  const bool number = field.bytes <= 8 && field.what != "name" && (*random)() % 2 == 0;
  if (!number) {
    char& byte = changed[field.at + (*random)() % field.bytes];
    byte = static_cast<char>(byte ^ (1 << (*random)() % 8));
    return changed;
  }
  uint64_t old = 0;
  std::memcpy(&old, file.data() + field.at, field.bytes);
  const uint64_t values[] = {0,          1,         old + 1,    old - 1,           2 * old,
                             old ^ 32,   INT32_MAX, UINT32_MAX, uint64_t{1} << 40, INT64_MAX,
                             UINT64_MAX, old << 8};
  const uint64_t value = values[(*random)() % std::size(values)];
  std::memcpy(changed.data() + field.at, &value, field.bytes);
  return changed;
}

std::string ArchitectureOf(const Fields& fields, const std::string& file) {
  for (const Field& field : fields.all()) {
    if (field.owner == "general.architecture" && field.what == "value") {
      return file.substr(field.at, field.bytes);
    }
  }
  return "";
}

// By ggml's number.
std::optional<Dtype> DtypeOf(uint32_t number) {
  constexpr std::pair<uint32_t, Dtype> kNumbers[] = {
      {0, Dtype::kF32},   {1, Dtype::kF16},   {2, Dtype::kQ4_0},  {3, Dtype::kQ4_1},
      {6, Dtype::kQ5_0},  {7, Dtype::kQ5_1},  {8, Dtype::kQ8_0},  {12, Dtype::kQ4_K},
      {13, Dtype::kQ5_K}, {14, Dtype::kQ6_K}, {30, Dtype::kBF16}, {39, Dtype::kMXFP4}};
  for (const auto& [other, dtype] : kNumbers) {
    if (other == number) return dtype;
  }
  return std::nullopt;
}

// A golden file, as it is or made anew.
struct Subject {
  std::string name;  // Of the test.
  std::string model;
  std::function<std::vector<std::string>(const std::string& file)> remake;
};
void PrintTo(const Subject& subject, std::ostream* out) { *out << subject.name; }

class GgufMutationTest : public ::testing::TestWithParam<Subject> {
 protected:
  void SetUp() override {
    backend_ = *MakeBackend("cpu", {.threads = 1});
    const std::string file = ReadFileOrFail(GoldenPath(GetParam().model + ".gguf"));
    parts_ = GetParam().remake ? GetParam().remake(file) : std::vector<std::string>{file};
    WriteParts();
    const auto valid = OpenCheckpoint(folder_.File(NameOf(0)));
    ASSERT_TRUE(valid.ok()) << valid.status();
    facts_ = FactsOf(valid->spec);
    for (const std::string& part : parts_) file_bytes_ += part.size();
    const auto right = Load(*valid);
    ASSERT_TRUE(right.ok()) << right.status();
    right_ = *right;
    // However it was made anew, it is the golden model.
    const GoldenModel golden = LoadGoldenModel(GetParam().model);
    EXPECT_EQ(*LogitsOfModel(backend_.get(), golden.spec, golden.weights), right_);
  }

  std::string NameOf(size_t part) const {
    return parts_.size() == 1 ? "m.gguf"
           : part == 0        ? "m-00001-of-00002.gguf"
                              : "m-00002-of-00002.gguf";
  }
  void WriteParts() const {
    for (size_t i = 0; i < parts_.size(); ++i) folder_.Write(NameOf(i), parts_[i]);
  }

  struct Read {
    Checkpoint checkpoint;
    absl::Status tokenizer;
  };

  absl::StatusOr<Read> Open() const {
    ASSIGN_OR_RETURN(Checkpoint checkpoint, OpenCheckpoint(folder_.File(NameOf(0))));
    const auto json = ReadGgufTokenizer(folder_.File(NameOf(0)));
    absl::Status tokenizer = json.status();
    if (json.ok()) tokenizer = ParseTokenizer(*json).status();
    return Read{std::move(checkpoint), tokenizer};
  }

  absl::StatusOr<std::vector<float>> Load(const Checkpoint& checkpoint) const {
    FileTensors weights;
    weights.AddGguf(checkpoint);
    Cost cost;
    auto logits = LogitsOfModel(backend_.get(), checkpoint.spec, weights, &cost);
    ExpectLoadedWithin(cost, file_bytes_);
    return logits;
  }

  void CheckSaid(const absl::Status& status, const Field& field) const {
    EXPECT_FALSE(ReasonOf(status).empty()) << status;
    EXPECT_TRUE(NamesOne(Describe(status), NamesOf(field))) << status;
  }

  // `file` is a part with one field changed.
  void Check(const Field& field, size_t part, const std::string& file) {
    folder_.Write(NameOf(part), file);
    Cost cost;
    const auto read = Measured([&] { return Open(); }, &cost);
    EXPECT_LT(cost.seconds, kMostSeconds * kSlower);
    EXPECT_LT(cost.bytes, kMostBytes + 64 * file_bytes_);
    if (!read.ok()) {
      ++refused_;
      CheckSaid(read.status(), field);
      return;
    }
    if (!read->tokenizer.ok()) {  // It then takes token ids only, and says why.
      CheckSaid(read->tokenizer, field);
    }
    const Facts loaded = FactsOf(read->checkpoint.spec);
    EXPECT_EQ(Disagreement(loaded, WantedOf(facts_, field, parts_[part], file)), "");
    const auto logits = Load(read->checkpoint);
    if (!logits.ok()) {
      ++refused_;
      CheckSaid(logits.status(), field);
      return;
    }
    if (field.what == "dtype") {
      // Its bits are other numbers now, and those may be any.
      uint32_t number = 0;
      std::memcpy(&number, file.data() + field.at, sizeof(number));
      for (const std::string& name : CheckpointNames(field.owner)) {
        const TensorEntry* entry = read->checkpoint.Find(name);
        if (entry != nullptr) {
          EXPECT_EQ(entry->dtype, DtypeOf(number));
        }
      }
      EXPECT_EQ(*logits == right_, file == parts_[part]);
      return;
    }
    if (loaded == facts_) {
      EXPECT_EQ(*logits, right_) << "it computes something else";
    } else if (DifferVisibly(loaded, facts_)) {
      EXPECT_NE(*logits, right_) << "what changed is not looked at";
    }
    EXPECT_TRUE(
        std::all_of(logits->begin(), logits->end(), [](float x) { return std::isfinite(x); }));
  }

  TempFolder folder_;
  std::unique_ptr<Backend> backend_;
  std::vector<std::string> parts_;
  uint64_t file_bytes_ = 0;
  Facts facts_;
  std::vector<float> right_;
  int refused_ = 0;
};

TEST_P(GgufMutationTest, EachLoadsRightOrIsRefusedByName) {
  std::vector<Fields> fields;
  for (const std::string& part : parts_) fields.emplace_back(part);
  const std::string architecture = ArchitectureOf(fields[0], parts_[0]);
  std::mt19937_64 random(20261123);
  for (int i = 0; i < kEach; ++i) {
    const size_t part = random() % parts_.size();
    std::vector<Field> choice = fields[part].all();
    // Every second one is of the architecture's keys, or of those that were added.
    if (i % 2 == 0) {
      const bool added = GetParam().remake != nullptr;
      std::erase_if(choice, [&](const Field& field) {
        const bool is_added = field.owner.find("rope.scaling") != std::string::npos ||
                              field.owner.starts_with("split.");
        return added ? !is_added : !field.owner.starts_with(architecture + ".");
      });
    }
    const Field& field = choice[random() % choice.size()];
    SCOPED_TRACE(NameOf(part) + " " + field.owner + ": " + field.what + " at " +
                 std::to_string(field.at));
    Check(field, part, Change(parts_[part], field, &random));
    folder_.Write(NameOf(part), parts_[part]);
  }
  EXPECT_GT(refused_, kEach / 4);
}

TEST_P(GgufMutationTest, AFileThatEndsAnywhereInItsHeaderIsRefused) {
  std::mt19937_64 random(20261124);
  for (int i = 0; i < kEach / 10; ++i) {
    const size_t part = random() % parts_.size();
    const size_t end = random() % Fields(parts_[part]).end();
    SCOPED_TRACE(NameOf(part) + " cut at " + std::to_string(end));
    folder_.Write(NameOf(part), parts_[part].substr(0, end));
    const auto read = Open();
    ASSERT_FALSE(read.ok());
    EXPECT_TRUE(NamesOne(Describe(read.status()), {"key \"", "tensor \"", " needs ", "counts"}))
        << read.status();
    folder_.Write(NameOf(part), parts_[part]);
  }
}

std::vector<Subject> Subjects() {
  std::vector<Subject> subjects;
  for (const std::string& name : GoldenModelNames()) {
    if (name.starts_with("gguf/")) {
      subjects.push_back({name.substr(5), name, nullptr});
    }
  }
  const auto scaled = [](const std::string& file) {
    return std::vector<std::string>{WithMoreKeys(file, [](MadeGguf* made) {
      made->String("llama.rope.scaling.type", "linear")
          .Float("llama.rope.scaling.factor", 1)
          .Float("llama.rope.scaling.attn_factor", 1)
          .Uint("llama.rope.scaling.original_context_length", 4096)
          .Bool("llama.rope.scaling.finetuned", false);
    })};
  };
  subjects.push_back({"llama_f16_scaled", "gguf/llama-f16", scaled});
  subjects.push_back({"llama_q8_0_split", "gguf/llama-q8_0", InTwoParts});
  return subjects;
}

INSTANTIATE_TEST_SUITE_P(All, GgufMutationTest, ::testing::ValuesIn(Subjects()),
                         [](const auto& info) {
                           std::string name = info.param.name;
                           std::replace(name.begin(), name.end(), '-', '_');
                           return name;
                         });

}  // namespace
}  // namespace strata::testing
