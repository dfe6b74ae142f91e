// Single mutations of the headers of golden GGUF files, field by field: each loads, and computes
// what the original does unless the field is one that says otherwise; or is refused by a sentence
// that names the key or tensor.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <memory>
#include <random>

#include "common/status.h"
#include "coordinator/registry/gguf_text.h"
#include "coordinator/tokenizer/tokenizer.h"
#include "tests/common/checkpoint/made_checkpoint.h"
#include "tests/golden.h"
#include "tests/mutations/cost.h"
#include "tests/mutations/loaded.h"
#include "tests/worker/backend/golden_model.h"

namespace strata::testing {
namespace {

constexpr int kEach = 110;
constexpr double kMostSeconds = 10;
constexpr uint64_t kMostBytes = uint64_t{16} << 20;

struct Field {
  size_t at = 0;
  size_t bytes = 0;
  std::string owner;  // The key or tensor; "" for what is of the whole file.
  std::string what;   // "value", "type", "count", "length", "name", ...
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

// What may change what is computed; all else is refused, or changes nothing.
bool Means(const Field& field) {
  for (const char* key : {"rope.freq_base", "layer_norm_rms_epsilon", "attention.head_count",
                          "attention.head_count_kv", "attention.key_length"}) {
    if (field.owner.ends_with(key)) return true;
  }
  // F16 and BF16 are of one size; of the architectures that a file may claim, one has other rows.
  return field.what == "dtype" || field.owner == "general.architecture";
}

// Names under which the header's keys are known behind it, as config.json has them.
std::vector<std::string> NamesOf(const Field& field) {
  constexpr std::pair<const char*, const char*> kConfig[] = {
      {"embedding_length", "hidden_size"},
      {"block_count", "num_hidden_layers"},
      {"feed_forward_length", "intermediate_size"},
      {"attention.head_count", "num_attention_heads"},
      {"attention.head_count_kv", "num_key_value_heads"},
      {"attention.key_length", "head_dim"},
      {"layer_norm_rms_epsilon", "rms_norm_eps"},
      {"context_length", "max_position_embeddings"},
      {"rope.freq_base", "rope_theta"}};
  std::vector<std::string> names = {field.owner};
  for (const auto& [key, name] : kConfig) {
    if (field.owner.ends_with(key)) names.emplace_back(name);
  }
  if (field.owner.starts_with("tokenizer")) names.emplace_back("tokenizer");
  // Whatever stands behind a wrong length is read as something else; a name or type that is wrong
  // is named as it is.
  if (field.owner.empty() || field.what != "value") {
    names.insert(names.end(), {"key", "GGUF", "version", "counts", "needs"});
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

class GgufMutationTest : public ::testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    backend_ = *MakeBackend("cpu", {.threads = 1});
    file_ = ReadFileOrFail(GoldenPath(GetParam() + ".gguf"));
    const GoldenModel golden = LoadGoldenModel(GetParam());
    right_ = *LogitsOfModel(backend_.get(), golden.spec, golden.weights);
  }

  struct Read {
    Checkpoint checkpoint;
    absl::Status tokenizer;
  };

  absl::StatusOr<Read> Open() const {
    ASSIGN_OR_RETURN(Checkpoint checkpoint, OpenCheckpoint(folder_.File("m.gguf")));
    const auto json = ReadGgufTokenizer(folder_.File("m.gguf"));
    absl::Status tokenizer = json.status();
    if (json.ok()) tokenizer = ParseTokenizer(*json).status();
    return Read{std::move(checkpoint), tokenizer};
  }

  void CheckSaid(const absl::Status& status, const Field& field) const {
    EXPECT_FALSE(ReasonOf(status).empty()) << status;
    EXPECT_TRUE(NamesOne(Describe(status), NamesOf(field))) << status;
  }

  void Check(const Field& field, const std::string& file) {
    folder_.Write("m.gguf", file);
    Cost cost;
    const auto read = Measured([&] { return Open(); }, &cost);
    EXPECT_LT(cost.seconds, kMostSeconds);
    EXPECT_LT(cost.bytes, kMostBytes + 64 * file.size());
    if (!read.ok()) {
      ++refused_;
      CheckSaid(read.status(), field);
      return;
    }
    if (!read->tokenizer.ok()) {  // It then takes token ids only, and says why.
      CheckSaid(read->tokenizer, field);
    }
    FileTensors weights;
    weights.AddGguf(read->checkpoint);
    const auto logits = LogitsOfModel(backend_.get(), read->checkpoint.spec, weights);
    if (!logits.ok()) {
      ++refused_;
      CheckSaid(logits.status(), field);
      return;
    }
    EXPECT_TRUE(*logits == right_ || Means(field)) << "it loads and computes something else";
    // Other weights' bits may be any numbers.
    EXPECT_TRUE(field.what == "dtype" || std::all_of(logits->begin(), logits->end(),
                                                     [](float x) { return std::isfinite(x); }));
  }

  TempFolder folder_;
  std::unique_ptr<Backend> backend_;
  std::string file_;
  std::vector<float> right_;
  int refused_ = 0;
};

TEST_P(GgufMutationTest, EachLoadsRightOrIsRefusedByName) {
  const Fields fields(file_);
  std::mt19937_64 random(20261123);
  for (int i = 0; i < kEach; ++i) {
    const Field& field = fields.all()[random() % fields.all().size()];
    SCOPED_TRACE(field.owner + ": " + field.what + " at " + std::to_string(field.at));
    Check(field, Change(file_, field, &random));
  }
  EXPECT_GT(refused_, kEach / 4);
}

TEST_P(GgufMutationTest, AFileThatEndsAnywhereInItsHeaderIsRefused) {
  const Fields fields(file_);
  std::mt19937_64 random(20261124);
  for (int i = 0; i < kEach / 10; ++i) {
    const size_t end = random() % fields.end();
    SCOPED_TRACE("cut at " + std::to_string(end));
    folder_.Write("m.gguf", file_.substr(0, end));
    const auto read = Open();
    ASSERT_FALSE(read.ok());
    EXPECT_TRUE(NamesOne(Describe(read.status()), {"key", "needs", "counts", "GGUF"}))
        << read.status();
  }
}

std::vector<std::string> Files() {
  std::vector<std::string> files;
  for (const std::string& name : GoldenModelNames()) {
    if (name.starts_with("gguf/")) files.push_back(name);
  }
  return files;
}

INSTANTIATE_TEST_SUITE_P(All, GgufMutationTest, ::testing::ValuesIn(Files()), [](const auto& info) {
  std::string name = info.param.substr(5);
  std::replace(name.begin(), name.end(), '-', '_');
  return name;
});

}  // namespace
}  // namespace strata::testing
