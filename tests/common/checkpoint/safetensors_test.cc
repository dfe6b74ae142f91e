#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

#include "absl/strings/str_cat.h"
#include "common/checkpoint/checkpoint.h"
#include "common/random.h"
#include "common/status.h"

namespace strata {
namespace {

using ::testing::AnyOf;
using ::testing::HasSubstr;

constexpr char kTwo[] = R"({"a":{"dtype":"F32","shape":[2,3],"data_offsets":[0,24]},)"
                        R"("b":{"dtype":"BF16","shape":[4],"data_offsets":[24,32]}})";

absl::StatusOr<std::vector<TensorEntry>> ParseHeader(std::string_view header,
                                                     uint64_t data_bytes = 32) {
  return ParseSafetensorsHeader(header, data_bytes, 100, "f.safetensors");
}

TEST(SafetensorsHeader, GivesNamesTypesShapesAndPlaces) {
  const auto entries = ParseHeader(kTwo);
  ASSERT_TRUE(entries.ok()) << entries.status();
  ASSERT_EQ(entries->size(), 2);
  EXPECT_EQ((*entries)[0].name, "a");
  EXPECT_EQ((*entries)[0].dtype, Dtype::kF32);
  EXPECT_EQ((*entries)[0].shape, (std::vector<uint64_t>{2, 3}));
  EXPECT_EQ((*entries)[0].offset, 100);
  EXPECT_EQ((*entries)[0].bytes, 24);
  EXPECT_EQ((*entries)[0].file, "f.safetensors");
  EXPECT_EQ((*entries)[1].dtype, Dtype::kBF16);
  EXPECT_EQ((*entries)[1].offset, 124);
}

TEST(SafetensorsHeader, TakesMetadataTrailingSpacesScalarsAndEmptyTensors) {
  const auto entries = ParseHeader(
      R"({"__metadata__":{"format":"pt"},"s":{"dtype":"I64","shape":[],"data_offsets":[0,8]},)"
      R"("z":{"dtype":"F16","shape":[0,5],"data_offsets":[8,8]},)"
      R"("y":{"dtype":"U8","shape":[3],"data_offsets":[8,11]}}   )",
      11);
  ASSERT_TRUE(entries.ok()) << entries.status();
  EXPECT_EQ(entries->size(), 3);
  EXPECT_TRUE(ParseHeader("{}", 0).ok());
}

// As mx.save_safetensors writes a file that was given none.
TEST(SafetensorsHeader, TakesMetadataOfNull) {
  const auto entries = ParseHeader(
      R"({"__metadata__":null,"s":{"dtype":"I64","shape":[],"data_offsets":[0,8]}})", 8);
  ASSERT_TRUE(entries.ok()) << entries.status();
  EXPECT_EQ(entries->size(), 1);
}

struct BadHeader {
  const char* header;
  uint64_t data_bytes;
  const char* says;
};

TEST(SafetensorsHeader, RefusesWhatIsWrongAndSaysWhat) {
  const BadHeader cases[] = {
      {"", 0, "does not begin with {"},
      {" {}", 0, "does not begin with {"},
      {"[1]", 0, "does not begin with {"},
      {"{", 0, "not valid JSON"},
      {"{}x", 0, "not valid JSON"},
      {"{\"a\xff\":1}", 0, "not valid JSON"},
      {"{}", 4, "bytes [0, 4) at the end belong to no tensor"},
      {R"({"a":1})", 0, "tensor \"a\" is not an object"},
      {R"({"":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}})", 1, "empty name"},
      {R"({"a":{"shape":[1],"data_offsets":[0,4]}})", 4, "tensor \"a\" has no dtype"},
      {R"({"a":{"dtype":7,"shape":[1],"data_offsets":[0,4]}})", 4, "tensor \"a\" has no dtype"},
      {R"({"a":{"dtype":"F31","shape":[1],"data_offsets":[0,4]}})", 4, "dtype \"F31\""},
      {R"({"a":{"dtype":"F32","data_offsets":[0,4]}})", 4, "tensor \"a\" has no shape"},
      {R"({"a":{"dtype":"F32","shape":[-1],"data_offsets":[0,4]}})", 4, "has no shape"},
      {R"({"a":{"dtype":"F32","shape":[1.0],"data_offsets":[0,4]}})", 4, "has no shape"},
      {R"({"a":{"dtype":"F32","shape":["1"],"data_offsets":[0,4]}})", 4, "has no shape"},
      {R"({"a":{"dtype":"F32","shape":[1]}})", 4, "no data_offsets"},
      {R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0]}})", 4, "no data_offsets"},
      {R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4,8]}})", 4, "no data_offsets"},
      {R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[4,0]}})", 4, "end before they begin"},
      {R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,5]}})", 5, "need 4 bytes"},
      {R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}})", 4, "past the end"},
      {R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[18446744073709551612,0]}})", 4,
       "end before"},
      {R"({"a":{"dtype":"F32","shape":[4294967296,4294967296,0],"data_offsets":[0,0]}})", 0,
       "shape of tensor \"a\" overflows"},
      {R"({"a":{"dtype":"F32","shape":[4611686018427387905],"data_offsets":[0,4]}})", 4,
       "overflows"},
      {R"({"a":{"dtype":"F32","shape":[99999999999999999999],"data_offsets":[0,4]}})", 4,
       "has no shape"},
      {R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4],"x":1}})", 4, "unknown field \"x\""},
      {R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},)"
       R"("b":{"dtype":"F32","shape":[1],"data_offsets":[4,8]}})",
       8, "tensors \"a\" and \"b\" overlap at byte 4"},
      {R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},)"
       R"("b":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}})",
       4, "overlap"},
      {R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},)"
       R"("b":{"dtype":"F32","shape":[1],"data_offsets":[8,12]}})",
       12, "bytes [4, 8) before tensor \"b\" belong to no tensor"},
      {R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[4,8]}})", 8, "bytes [0, 4)"},
      {R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},)"
       R"("a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}})",
       4, "key \"a\" twice"},
      {R"({"a":{"dtype":"F32","dtype":"F32","shape":[1],"data_offsets":[0,4]}})", 4,
       "key \"dtype\" twice"},
      {R"({"__metadata__":{"format":1}})", 0, "__metadata__ field \"format\""},
      {R"({"__metadata__":[]})", 0, "__metadata__"},
  };
  for (const BadHeader& bad : cases) {
    const auto entries = ParseHeader(bad.header, bad.data_bytes);
    EXPECT_EQ(entries.status().code(), absl::StatusCode::kInvalidArgument) << bad.header;
    EXPECT_THAT(std::string(entries.status().message()), HasSubstr(bad.says)) << bad.header;
    EXPECT_EQ(ReasonOf(entries.status()), "INVALID_SAFETENSORS") << bad.header;
    EXPECT_THAT(std::string(entries.status().message()), HasSubstr("f.safetensors"));
  }
}

// Whatever a tensor's dtype is, its size says where the next one begins; what cannot be used is
// refused where a model needs it.
TEST(SafetensorsHeader, CountsTheBytesOfEveryDtype) {
  const std::pair<const char*, uint64_t> of_eight[] = {
      {"BOOL", 8},    {"U8", 8},   {"I8", 8},      {"F8_E4M3", 8},     {"F8_E5M2", 8},
      {"F8_E8M0", 8}, {"F4", 4},   {"F6_E2M3", 6}, {"F6_E3M2", 6},     {"U16", 16},
      {"I16", 16},    {"F16", 16}, {"BF16", 16},   {"F8_E4M3FNUZ", 8}, {"F8_E5M2FNUZ", 8},
      {"U32", 32},    {"I32", 32}, {"F32", 32},    {"U64", 64},        {"I64", 64},
      {"F64", 64},    {"C64", 64}};
  for (const auto& [dtype, bytes] : of_eight) {
    const auto header = [&](uint64_t end) {
      return absl::StrCat(R"({"w":{"dtype":")", dtype, R"(","shape":[2,4],"data_offsets":[0,)", end,
                          "]}}");
    };
    const auto entries = ParseHeader(header(bytes), bytes);
    ASSERT_TRUE(entries.ok()) << dtype << ": " << entries.status();
    EXPECT_EQ(DtypeName((*entries)[0].dtype), std::string(dtype));
    EXPECT_FALSE(ParseHeader(header(bytes - 1), bytes - 1).ok()) << dtype;
  }
}

TEST(SafetensorsHeader, RefusesSizesThatEndWithinAByte) {
  for (const char* dtype : {"F4", "F6_E2M3", "F6_E3M2"}) {
    const auto entries = ParseHeader(
        absl::StrCat(R"({"w":{"dtype":")", dtype, R"(","shape":[3],"data_offsets":[0,2]}})"), 2);
    EXPECT_THAT(std::string(entries.status().message()),
                HasSubstr("shape of tensor \"w\" overflows, or ends within a byte"));
  }
  const auto huge =
      ParseHeader(R"({"w":{"dtype":"F4","shape":[9223372036854775808],"data_offsets":[0,4]}})", 4);
  EXPECT_THAT(std::string(huge.status().message()), HasSubstr("overflows"));
}

TEST(SafetensorsHeader, RefusesDeepNestingWithoutRecursion) {
  std::string deep = R"({"a":)";
  deep.append(1000000, '[');
  const auto open = ParseHeader(deep, 0);
  EXPECT_EQ(open.status().code(), absl::StatusCode::kInvalidArgument);
  deep.append(1000000, ']');
  deep += "}";
  EXPECT_THAT(std::string(ParseHeader(deep, 0).status().message()), HasSubstr("too deeply"));
}

TEST(SafetensorsHeader, KeepsNamesHarmlessInMessages) {
  const std::string header = R"({"a\u0000\n)" + std::string(5000, 'x') + R"(":1})";
  const auto entries = ParseHeader(header, 0);
  ASSERT_FALSE(entries.ok());
  const std::string message(entries.status().message());
  EXPECT_LT(message.size(), 250);
  EXPECT_EQ(message.find('\n'), std::string::npos);
  EXPECT_EQ(message.find('\0'), std::string::npos);
}

TEST(SafetensorsHeader, RefusesOffsetsThatOverflowTheFile) {
  const auto entries =
      ParseSafetensorsHeader("{}", std::numeric_limits<uint64_t>::max(), 8, "f.safetensors");
  EXPECT_EQ(entries.status().code(), absl::StatusCode::kInvalidArgument);
}

// Whatever is done to a header, it is refused with a sentence or describes the data exactly.
TEST(SafetensorsHeader, SurvivesRandomDamage) {
  const std::string good = kTwo;
  uint32_t draw = 0;
  const auto random = [&](uint64_t below) { return Philox(11, 0, draw++) % below; };
  int refused = 0;
  for (int i = 0; i < 20000; ++i) {
    std::string header = good;
    for (uint64_t edits = 1 + random(3); edits > 0; --edits) {
      const size_t at = random(header.size());
      switch (random(4)) {
        case 0:
          header[at] = static_cast<char>(random(256));
          break;
        case 1:
          header.erase(at, 1 + random(6));
          break;
        case 2:
          header.insert(at, header.substr(random(header.size()), random(12)));
          break;
        default:
          header[at] = "{}[]\",:0123456789eE-."[random(21)];
      }
      if (header.empty()) {
        header = "{";
      }
    }
    const auto entries = ParseHeader(header);
    if (!entries.ok()) {
      ++refused;
      EXPECT_THAT(entries.status().code(),
                  AnyOf(absl::StatusCode::kInvalidArgument, absl::StatusCode::kUnimplemented));
      EXPECT_FALSE(entries.status().message().empty());
      continue;
    }
    uint64_t sum = 0;
    for (const TensorEntry& entry : *entries) {
      EXPECT_LE(entry.offset + entry.bytes, 132);
      sum += entry.bytes;
    }
    EXPECT_EQ(sum, 32) << header;
  }
  EXPECT_GT(refused, 10000);
}

}  // namespace
}  // namespace strata
