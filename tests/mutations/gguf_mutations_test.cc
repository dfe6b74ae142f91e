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
#include "tests/common/checkpoint/made_checkpoint.h"
#include "tests/cost.h"
#include "tests/golden.h"
#include "tests/mutations/facts.h"
#include "tests/mutations/gguf_fields.h"
#include "tests/mutations/gguf_keys.h"
#include "tests/mutations/gguf_meaning.h"
#include "tests/mutations/gguf_names.h"
#include "tests/mutations/gguf_tokens.h"
#include "tests/mutations/loaded.h"
#include "tests/mutations/remade_gguf.h"
#include "tests/worker/backend/models/golden_model.h"
#include "text/tokenizer/gguf_tokenizer.h"
#include "worker/backend/kinds/make_backend.h"

namespace strata::testing {
namespace {

constexpr int kEach = 200;
constexpr uint64_t kMostBytes = uint64_t{32} << 20;

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

// By ggml's number.
std::optional<Dtype> DtypeOf(uint32_t number) {
  constexpr std::pair<uint32_t, Dtype> kNumbers[] = {
      {0, Dtype::kF32},   {1, Dtype::kF16},   {2, Dtype::kQ4_0},    {3, Dtype::kQ4_1},
      {6, Dtype::kQ5_0},  {7, Dtype::kQ5_1},  {8, Dtype::kQ8_0},    {12, Dtype::kQ4_K},
      {13, Dtype::kQ5_K}, {14, Dtype::kQ6_K}, {30, Dtype::kBF16},   {39, Dtype::kMXFP4},
      {10, Dtype::kQ2_K}, {11, Dtype::kQ3_K}, {20, Dtype::kIQ4_NL}, {23, Dtype::kIQ4_XS}};
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
    backend_ = *MakeBackend("cpu", {.cpu = {.threads = 1}});
    const std::string file = ReadFileOrFail(GoldenPath(GetParam().model + ".gguf"));
    parts_ = GetParam().remake ? GetParam().remake(file) : std::vector<std::string>{file};
    WriteParts();
    const auto valid = OpenCheckpoint(folder_.File(NameOf(0)));
    ASSERT_TRUE(valid.ok()) << valid.status();
    facts_ = FactsOf(valid->spec);
    const auto keys = GgufKeysOf(parts_[0]);
    EXPECT_EQ(Disagreement(facts_, GgufMeaning(facts_, *keys)), "");
    text_ = SampleText(*keys);
    const auto tokens = Tokens();
    ASSERT_TRUE(tokens.ok()) << tokens.status();
    EXPECT_EQ(*tokens, GgufTokensOf(*keys, text_)) << text_;
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
    absl::StatusOr<std::vector<uint32_t>> tokens;  // Of text_.
  };

  absl::StatusOr<Read> Open() const {
    ASSIGN_OR_RETURN(Checkpoint checkpoint, OpenCheckpoint(folder_.File(NameOf(0))));
    return Read{std::move(checkpoint), Tokens()};
  }

  absl::StatusOr<std::vector<uint32_t>> Tokens() const {
    ASSIGN_OR_RETURN(const auto tokenizer, ReadGgufTokenizer(folder_.File(NameOf(0))));
    return tokenizer->Encode(text_, true);
  }

  absl::StatusOr<std::vector<float>> Load(const Checkpoint& checkpoint) const {
    FileTensors weights;
    weights.AddCheckpoint(checkpoint);
    Cost cost;
    auto logits = LogitsOfModel(backend_.get(), checkpoint.spec, weights, &cost);
    ExpectLoadedWithin(cost, file_bytes_);
    return logits;
  }

  static void CheckSaid(const absl::Status& status, const std::vector<std::string>& names) {
    EXPECT_FALSE(ReasonOf(status).empty()) << status;
    EXPECT_TRUE(NamesOne(Describe(status), names)) << status;
  }

  // `file` is a part with one field changed.
  void Check(const Field& field, size_t part, const std::string& file) {
    folder_.Write(NameOf(part), file);
    const std::vector<std::string> names = NamesOf(field, parts_[part], file);
    Cost cost;
    const auto read = Measured([&] { return Open(); }, &cost);
    ExpectReadWithin(cost, file_bytes_, kMostBytes);
    if (!read.ok()) {
      ++refused_;
      CheckSaid(read.status(), names);
      return;
    }
    const auto keys = GgufKeysOf(part == 0 ? file : parts_[0]);
    ASSERT_TRUE(keys.has_value()) << "its keys do not end";
    if (read->tokens.ok()) {
      EXPECT_EQ(*read->tokens, GgufTokensOf(*keys, text_)) << text_;
    } else {  // It then takes token ids only, and says why.
      CheckSaid(read->tokens.status(), names);
    }
    const Facts loaded = FactsOf(read->checkpoint.spec);
    EXPECT_EQ(Disagreement(loaded, GgufMeaning(facts_, *keys)), "");
    const auto logits = Load(read->checkpoint);
    if (!logits.ok()) {
      ++refused_;
      CheckSaid(logits.status(), names);
      return;
    }
    if (field.what == "dtype") {
      // Its bits are other numbers now, and those may be any.
      uint32_t number = 0;
      std::memcpy(&number, file.data() + field.at, sizeof(number));
      // Of the names that it has in one family or another.
      const std::vector<std::string> own = CheckpointNames(field.owner);
      EXPECT_TRUE(own.empty() ||
                  std::any_of(own.begin(), own.end(),
                              [&](const std::string& name) {
                                const TensorEntry* entry = read->checkpoint.Find(name);
                                return entry != nullptr && entry->dtype == DtypeOf(number);
                              }))
          << number;
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
  std::string text_;
  std::vector<float> right_;
  int refused_ = 0;
};

TEST_P(GgufMutationTest, EachLoadsRightOrIsRefusedByName) {
  std::vector<Fields> fields;
  for (const std::string& part : parts_) fields.emplace_back(part);
  const std::string architecture = fields[0].architecture();
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
