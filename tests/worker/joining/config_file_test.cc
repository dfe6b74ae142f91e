#include "worker/joining/config_file.h"

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

}  // namespace
}  // namespace strata
