#include "common/config_file.h"

#include <gtest/gtest.h>

namespace strata {
namespace {

TEST(ConfigFileTest, WhatIsSetIsReplacedAndTheRestStays) {
  EXPECT_EQ(WithSettings("# About\ncoordinator = \"a:1\"\n\nthreads = 2\n",
                         {{"coordinator", "b:2"}, {"name", "w"}}),
            "# About\ncoordinator = \"b:2\"\n\nthreads = 2\nname = \"w\"\n");
}

TEST(ConfigFileTest, ALineThatIsCommentedOutIsSet) {
  EXPECT_EQ(WithSettings("# coordinator = \"127.0.0.1:7070\"\n#  tls-dir=\"\"\n",
                         {{"coordinator", "b:2"}, {"tls-dir", "/t"}}),
            "coordinator = \"b:2\"\ntls-dir = \"/t\"\n");
}

TEST(ConfigFileTest, ALineThatIsSetGoesBeforeOneThatIsCommentedOut) {
  EXPECT_EQ(WithSettings("# name = \"x\"\nname = \"y\"\n", {{"name", "z"}}),
            "# name = \"x\"\nname = \"z\"\n");
}

TEST(ConfigFileTest, KeysThatOnlyBeginAlikeAreOthers) {
  EXPECT_EQ(WithSettings("names = 1\nname-of = 2\n# The name is ours.\n", {{"name", "z"}}),
            "names = 1\nname-of = 2\n# The name is ours.\nname = \"z\"\n");
}

TEST(ConfigFileTest, AnEmptyFileGetsWhatIsSet) {
  EXPECT_EQ(WithSettings("", {{"name", "a\"b\\c"}}), "name = \"a\\\"b\\\\c\"\n");
}

TEST(ConfigFileTest, ALastLineWithoutItsEndIsKept) {
  EXPECT_EQ(WithSettings("threads = 2", {{"name", "z"}}), "threads = 2\nname = \"z\"\n");
}

TEST(ConfigFileTest, WhatALineSetsIsToldWithoutQuotes) {
  const std::string text = "# a = \"x\"\na-b = \"0.0.0.0:1\"  # all\nn = 3 # three\n  q='1'\n";
  EXPECT_EQ(SettingOf(text, "a-b"), "0.0.0.0:1");
  EXPECT_EQ(SettingOf(text, "n"), "3");
  EXPECT_EQ(SettingOf(text, "q"), "1");
  EXPECT_EQ(SettingOf(text, "a"), std::nullopt) << "that line is a comment";
  EXPECT_EQ(SettingOf("", "a"), std::nullopt);
}

}  // namespace
}  // namespace strata
