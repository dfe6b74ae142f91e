#include "text/tokenizer/long_lists.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/golden.h"
#include "text/tokenizer/tokenizer.h"

namespace strata {
namespace {

using ::testing::ElementsAre;
using ::testing::Pair;

TEST(LongLists, AreTakenOutOfTheFile) {
  const auto lists = TakeLongLists(R"({"version": "1.0", "added_tokens": [{"x": "]},{\"model\""}],
    "model": {"type": "BPE", "unk_token": null, "vocab": {"a": 0, "\u00e9\"": 12,
    "\ud83d\ude00": 3}, "merges": ["#version: 0.2", "a b", ["\\", " c "]] , "more": 1}, "z": {}})");
  ASSERT_TRUE(lists.has_value());
  EXPECT_THAT(lists->vocab, ElementsAre(Pair("a", 0), Pair("\u00e9\"", 12), Pair("\U0001f600", 3)));
  EXPECT_THAT(lists->merges, ElementsAre(Pair("a", "b"), Pair("\\", " c ")));
  EXPECT_EQ(lists->rest, R"({"version": "1.0", "added_tokens": [{"x": "]},{\"model\""}],
    "model": {"type": "BPE", "unk_token": null, "vocab": {}, "merges": [] , "more": 1}, "z": {}})");
}

TEST(LongLists, OfAFileThatIsAnyOtherAreLeftToTheTree) {
  const auto file = [](const std::string& model) { return "{\"model\": " + model + "}"; };
  ASSERT_TRUE(TakeLongLists(file(R"({"type":"BPE","vocab":{"a":0},"merges":[]})")).has_value());
  for (const char* model : {
           R"({"vocab":{"a":0},"merges":[]})",                            // No type,
           R"({"vocab":{"a":0},"merges":[],"type":"BPE"})",               // or behind them.
           R"({"type":"WordPiece","vocab":{"a":0},"merges":[]})",         //
           R"({"type":"BPE","vocab":{"a":0}})",                           // No merges.
           R"({"type":"BPE","vocab":{"a":0},"vocab":{},"merges":[]})",    // Twice.
           R"({"type":"BPE","vocab":{"a":0,},"merges":[]})",              //
           R"({"type":"BPE","vocab":{"a":-1},"merges":[]})",              //
           R"({"type":"BPE","vocab":{"a":1.0},"merges":[]})",             //
           R"({"type":"BPE","vocab":{"a":01},"merges":[]})",              //
           R"({"type":"BPE","vocab":{"a":99999999999},"merges":[]})",     //
           R"({"type":"BPE","vocab":{"a" 1},"merges":[]})",               //
           R"({"type":"BPE","vocab":{"a":1},"merges":["ab"]})",           //
           R"({"type":"BPE","vocab":{"a":1},"merges":["a b c"]})",        //
           R"({"type":"BPE","vocab":{"a":1},"merges":[["a","b","c"]]})",  //
           R"({"type":"BPE","vocab":{"a":1},"merges":[["a" "b"]]})",      //
           R"({"type":"BPE","vocab":{"a":1},"merges":[3]})",              //
           R"({"type":"BPE","vocab":{"\ud83d":1},"merges":[]})",          // Half a pair.
           R"({"type":"BPE","vocab":{"\x":1},"merges":[]})",              //
           "{\"type\":\"BPE\",\"vocab\":{\"\n\":1},\"merges\":[]}",       // A raw newline.
           "{\"type\":\"BPE\",\"vocab\":{\"\xff\":1},\"merges\":[]}",     // No UTF-8.
           R"({"type":"BPE","vocab":{"a":1},"merges":[)",                 //
           R"({"type":"BPE","vocab":{"a":1},"merges":[["\)",              // Ends in a backslash.
       }) {
    EXPECT_FALSE(TakeLongLists(file(model)).has_value()) << model;
  }
  EXPECT_FALSE(TakeLongLists("").has_value());
  EXPECT_FALSE(TakeLongLists("[]").has_value());
  EXPECT_FALSE(
      TakeLongLists(file(R"({"type":"BPE","vocab":{"a":0},"merges":[]})") + "x").has_value());
}

// Each as a file by itself, and by the tree: with a blank before "type" the lists are not found.
TEST(LongLists, GiveWhatTheTreeGives) {
  for (const char* name : {"llama3", "gpt2_prefix", "gemma", "llama2", "deepseek"}) {
    const std::string file = testing::ReadFileOrFail(
        testing::GoldenPath(std::string("tokenizers/") + name + "/tokenizer.json"));
    ASSERT_TRUE(TakeLongLists(file).has_value()) << name;
    std::string other = file;
    const size_t type = other.find("\"BPE\"");
    ASSERT_NE(type, std::string::npos);
    other.replace(type, 5, "\"\\u0042PE\"");
    ASSERT_FALSE(TakeLongLists(other).has_value()) << name;
    const auto a = ParseTokenizer(file);
    const auto b = ParseTokenizer(other);
    ASSERT_TRUE(a.ok() && b.ok()) << a.status() << b.status();
    ASSERT_EQ((*a)->vocab_size(), (*b)->vocab_size());
    for (uint32_t id = 0; id < (*a)->vocab_size(); ++id) {
      const uint32_t ids[] = {id};
      ASSERT_EQ((*a)->Decode(ids, false), (*b)->Decode(ids, false)) << name << " " << id;
    }
    const std::string text = "It's a  text: caf\u00e9 12345 \u4e2d\u6587\n\n\tdef f(x):\n";
    EXPECT_EQ(*(*a)->Encode(text, true), *(*b)->Encode(text, true)) << name;
  }
}

}  // namespace
}  // namespace strata
