#include "common/checkpoint/gguf.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "common/random.h"
#include "common/status.h"
#include "tests/common/checkpoint/made_checkpoint.h"
#include "tests/common/checkpoint/made_gguf.h"
#include "tests/golden.h"

namespace strata {
namespace {

using ::testing::ElementsAre;
using testing::GgufString;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using testing::LittleEndian;
using testing::MadeGguf;

absl::StatusOr<GgufHeader> Parse(const std::string& file) {
  return ParseGgufHeader(file, file.size(), "f.gguf");
}
std::string Problem(const std::string& file) { return std::string(Parse(file).status().message()); }

std::string Start(uint32_t version, uint64_t tensors, uint64_t values) {
  return "GGUF" + LittleEndian(version) + LittleEndian(tensors) + LittleEndian(values);
}

TEST(GgufHeader, GivesValuesOfEveryTypeAndTensorsWithTheSlowestDimensionFirst) {
  const std::string file = MadeGguf()
                               .Uint("u", 7)
                               .Float("f", 0.5f)
                               .Bool("b", true)
                               .String("s", "text")
                               .Strings("ss", {"a", "", "bc"})
                               .Floats("fs", {1, 2})
                               .Ints("is", {-1, 3})
                               .Bools("bs", {true, false})
                               .Tensor("m", 8, {3, 64}, std::string(3 * 2 * 34, 'm'))
                               .Tensor("v", 0, {5}, std::string(20, 'v'))
                               .File();
  const auto header = Parse(file);
  ASSERT_TRUE(header.ok()) << header.status();
  GgufReader reader(&*header);
  EXPECT_EQ(reader.Uint("u", 0, 10), 7);
  EXPECT_EQ(reader.Number("f", 0, 1), 0.5);
  EXPECT_TRUE(reader.Bool("b", false));
  EXPECT_EQ(reader.String("s", ""), "text");
  EXPECT_THAT(reader.Strings("ss"), ElementsAre("a", "", "bc"));
  EXPECT_THAT(reader.Floats("fs"), ElementsAre(1, 2));
  EXPECT_THAT(reader.Ints("is"), ElementsAre(-1, 3));
  EXPECT_THAT(reader.Bools("bs"), ElementsAre(true, false));
  EXPECT_EQ(reader.Uint("none", 0, 10, 3), 3);
  EXPECT_THAT(reader.Strings("none"), IsEmpty());
  ASSERT_TRUE(reader.status().ok()) << reader.status();
  ASSERT_EQ(header->tensors.size(), 2);
  const GgufTensor& m = header->tensors[0];
  EXPECT_EQ(m.name, "m");
  EXPECT_EQ(m.dtype, Dtype::kQ8_0);
  EXPECT_EQ(m.shape, (std::vector<uint64_t>{3, 64}));
  EXPECT_EQ(m.bytes, 204);
  EXPECT_EQ(file.substr(m.offset, m.bytes), std::string(204, 'm'));
  const GgufTensor& v = header->tensors[1];
  EXPECT_EQ(file.substr(v.offset, v.bytes), std::string(20, 'v'));
}

TEST(GgufHeader, ReadsTheGoldenFiles) {
  for (const char* name : {"llama-f32", "llama-f16", "llama-q8_0", "llama-q4_0", "llama31-q8_0"}) {
    const auto file = ReadGgufFile(testing::GoldenPath(std::string("gguf/") + name + ".gguf"));
    ASSERT_TRUE(file.ok()) << file.status();
    EXPECT_EQ(GgufReader(&file->header).String("general.architecture", ""), "llama");
    EXPECT_GT(file->header.tensors.size(), 20);
  }
}

TEST(GgufHeader, TakesAnotherAlignment) {
  std::string file = MadeGguf().Uint("general.alignment", 64).Tensor("t", 0, {8}, "").File();
  file.resize((file.size() + 63) / 64 * 64);
  file += std::string(32, 't');
  const auto header = Parse(file);
  ASSERT_TRUE(header.ok()) << header.status();
  EXPECT_EQ(header->tensors[0].offset, file.size() - 32);
}

struct BadFile {
  std::string file;
  const char* says;
};

TEST(GgufHeader, RefusesWhatIsWrongAndNamesTheKeyOrTensor) {
  constexpr uint64_t kHuge = ~uint64_t{0};
  const auto value = [](uint32_t type, const std::string& bytes) {
    return MadeGguf().Raw("k", type, bytes).File();
  };
  const auto list = [&](uint32_t type, uint64_t count) {
    return value(9, LittleEndian(type) + LittleEndian(count));
  };
  const std::string name = GgufString("t");
  const BadFile cases[] = {
      {"", "the magic number"},
      {"GGU", "the magic number"},
      {"GGML" + std::string(20, '\0'), "does not begin with GGUF"},
      {Start(1, 0, 0), "version 1"},
      {Start(4, 0, 0), "version 4"},
      {Start(0x03000000, 0, 0), "big-endian"},
      {Start(3, kHuge, 0), "counts 18446744073709551615 tensors"},
      {Start(3, 0, kHuge), "more than its 24 bytes could hold"},
      {Start(3, 0, 1), "counts 0 tensors and 1 key-values"},
      {Start(3, 0, 1) + LittleEndian(kHuge) + "12345", "a key needs 18446744073709551615 bytes"},
      {Start(3, 0, 1) + LittleEndian<uint64_t>(0) + "12345", "a key has 0 bytes"},
      {value(13, ""), "key \"k\" has values of the unknown type 13"},
      {list(9, 0), "key \"k\" has values of the unknown type 9"},
      {list(0, kHuge), "a list of 18446744073709551615 values"},
      {list(12, kHuge / 8 + 1), "more than the file could hold"},
      {list(8, 1000), "key \"k\" has a list of 1000 values"},
      {value(8, LittleEndian(kHuge)), "key \"k\" needs 18446744073709551615 bytes"},
      {MadeGguf().Uint("k", 1).Uint("k", 2).File(), "key \"k\" is there twice"},
      {MadeGguf().Uint("general.alignment", 0).File(), "\"general.alignment\" is 0"},
      {MadeGguf().Uint("general.alignment", 48).File(), "no power of two"},
      {MadeGguf().String("general.alignment", "32").File(), "\"general.alignment\""},
      {MadeGguf().Tensor("t", 0, {}, "").File(), "tensor \"t\" has 0 dimensions"},
      {MadeGguf().Tensor("t", 0, {1, 1, 1, 1, 1}, "1234").File(), "tensor \"t\" has 5 dimensions"},
      {MadeGguf().Tensor("t", 0, {2, 0}, "").File(), "tensor \"t\" has a dimension of 0"},
      {MadeGguf().Tensor("t", 4, {32}, "").File(), "tensor \"t\" is of the unknown type 4"},
      {MadeGguf().Tensor("t", 21, {256}, "").File(), "type IQ3_S of tensor \"t\""},
      {MadeGguf().Tensor("t", 0, {1u << 31, 1u << 31, 4}, "").File(), "overflows"},
      {MadeGguf().Tensor("t", 8, {2, 48}, "").File(), "no whole number of blocks of Q8_0"},
      {MadeGguf().Tensor("t", 12, {2, 128}, "").File(), "no whole number of blocks of Q4_K"},
      {MadeGguf().Tensor("t", 0, {9}, std::string(32, 't')).File(), "tensor \"t\" has 36 bytes"},
      {MadeGguf().Tensor("t", 0, {8}, std::string(32, 't')).File(2, 0), "a tensor's name needs"},
      {Start(3, 1, 0) + name + LittleEndian<uint32_t>(1) + LittleEndian<uint64_t>(1) +
           LittleEndian<uint32_t>(0) + LittleEndian<uint64_t>(4) + std::string(64, 'x'),
       "begins at 4, no multiple of the alignment 32"},
      {Start(3, 1, 0) + name + LittleEndian<uint32_t>(1) + LittleEndian<uint64_t>(1) +
           LittleEndian<uint32_t>(0) + LittleEndian(kHuge - 31) + std::string(64, 'x'),
       "tensor \"t\" has 4 bytes from"},
      {Start(3, 2, 0) + name + LittleEndian<uint32_t>(1) + LittleEndian<uint64_t>(9) +
           LittleEndian<uint32_t>(0) + LittleEndian<uint64_t>(0) + GgufString("u") +
           LittleEndian<uint32_t>(1) + LittleEndian<uint64_t>(1) + LittleEndian<uint32_t>(0) +
           LittleEndian<uint64_t>(32) + std::string(128, 'x'),
       "\"t\" and \"u\" overlap"},
  };
  for (const BadFile& bad : cases) {
    SCOPED_TRACE(bad.says);
    const absl::Status status = Parse(bad.file).status();
    EXPECT_THAT(std::string(status.message()), HasSubstr(bad.says));
    EXPECT_TRUE(status.code() == absl::StatusCode::kInvalidArgument ||
                status.code() == absl::StatusCode::kUnimplemented)
        << status;
    EXPECT_FALSE(ReasonOf(status).empty());
  }
}

TEST(GgufHeader, EveryCutIsRefusedOrAsksForMore) {
  const std::string file = MadeGguf::SmallLlama(8).Strings("list", {"a", "b"}).File();
  ASSERT_TRUE(Parse(file).ok()) << Problem(file);
  const size_t data = Parse(file)->tensors[0].offset;
  for (size_t size = 0; size < data; ++size) {
    // All that there is of the file.
    EXPECT_EQ(Parse(file.substr(0, size)).status().code(), absl::StatusCode::kInvalidArgument);
    // The beginning of a longer one.
    const auto head = ParseGgufHeader(file.substr(0, size), file.size(), "f.gguf");
    EXPECT_TRUE(head.ok() || head.status().code() == absl::StatusCode::kOutOfRange)
        << size << " " << head.status();
  }
}

TEST(GgufHeader, MutationsAreReadOrRefused) {
  const std::string file = MadeGguf::SmallLlama(8).Strings("list", {"a", "b"}).File();
  const size_t header = Parse(file)->tensors[0].offset;
  for (uint32_t i = 0; i < 20'000; ++i) {
    const uint64_t random = Philox(3, 0, i);
    std::string bad = file;
    bad[(random >> 8) % header] = static_cast<char>(random);
    const auto parsed = Parse(bad);
    if (!parsed.ok()) {
      EXPECT_FALSE(ReasonOf(parsed.status()).empty()) << parsed.status();
      continue;
    }
    for (const GgufTensor& tensor : parsed->tensors) {
      ASSERT_LE(tensor.offset, bad.size());
      ASSERT_LE(tensor.bytes, bad.size() - tensor.offset);
    }
  }
}

TEST(GgufReader, NamesTheKeyThatIsWrong) {
  const std::string file = MadeGguf()
                               .Uint("n", 5)
                               .Float("f", 2)
                               .String("s", "x")
                               .Ints("is", {1})
                               .Raw("u64", 10, LittleEndian(~uint64_t{0}))
                               .File();
  const auto header = Parse(file);
  ASSERT_TRUE(header.ok());
  const auto fails = [&](const auto& read) {
    GgufReader reader(&*header);
    read(&reader);
    return std::string(reader.status().message());
  };
  EXPECT_THAT(fails([](GgufReader* r) { r->Uint("none", 0, 1); }),
              HasSubstr("\"none\" is missing"));
  EXPECT_THAT(fails([](GgufReader* r) { r->Uint("n", 0, 4); }), HasSubstr("\"n\" is 5, which"));
  EXPECT_THAT(fails([](GgufReader* r) { r->Uint("f", 0, 4); }), HasSubstr("no integer"));
  EXPECT_THAT(fails([](GgufReader* r) { r->Uint("u64", 0, ~uint64_t{0}); }), HasSubstr("\"u64\""));
  EXPECT_THAT(fails([](GgufReader* r) { r->Number("n", 0, 9); }), HasSubstr("no number"));
  EXPECT_THAT(fails([](GgufReader* r) { r->Bools("is"); }), HasSubstr("true and false"));
  EXPECT_THAT(fails([](GgufReader* r) { r->Number("f", 0, 1); }), HasSubstr("from 0 to 1"));
  EXPECT_THAT(fails([](GgufReader* r) { r->Bool("n", false); }), HasSubstr("neither true"));
  EXPECT_THAT(fails([](GgufReader* r) { r->String("n", ""); }), HasSubstr("no string"));
  EXPECT_THAT(fails([](GgufReader* r) { r->Uint("is", 0, 4); }), HasSubstr("is a list"));
  EXPECT_THAT(fails([](GgufReader* r) { r->Strings("s"); }), HasSubstr("no list"));
  EXPECT_THAT(fails([](GgufReader* r) { r->Strings("is"); }), HasSubstr("no list of strings"));
  EXPECT_THAT(fails([](GgufReader* r) { r->Floats("is"); }), HasSubstr("no list of float32"));
}

TEST(GgufFile, SaysWhatIsNotThere) {
  EXPECT_EQ(ReadGgufFile("/none/x.gguf").status().code(), absl::StatusCode::kNotFound);
  const testing::TempFolder folder;
  folder.Write("x.gguf", "GG");
  EXPECT_THAT(std::string(ReadGgufFile(folder.File("x.gguf")).status().message()),
              HasSubstr("x.gguf"));
}

}  // namespace
}  // namespace strata
