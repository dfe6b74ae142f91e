#include "common/names.h"

#include <gtest/gtest.h>

#include <string>

#include "common/status.h"

namespace strata {
namespace {

TEST(Names, AreNoOptionsNoPathsAndHaveNoBlanks) {
  for (const char* name : {"a", "node-1", "Llama-3.2_1B", "0", "_x"}) {
    EXPECT_EQ(CheckNodeName(name), absl::OkStatus()) << name;
    EXPECT_EQ(CheckModelName(name), absl::OkStatus()) << name;
  }
  for (const char* name : {"", "-rf", "--help", ".", "..", ".hidden", "a b", "a/b", "a\nb",
                           "a\x1b[31m", "gr\xc3\xbcn", "a\xff", "a:b", "a,b"}) {
    EXPECT_EQ(ReasonOf(CheckNodeName(name)), "BAD_NAME") << name;
    EXPECT_EQ(ReasonOf(CheckModelName(name)), "BAD_NAME") << name;
  }
  EXPECT_EQ(CheckNodeName(std::string(64, 'n')), absl::OkStatus());
  EXPECT_EQ(ReasonOf(CheckNodeName(std::string(65, 'n'))), "BAD_NAME");
  EXPECT_EQ(CheckModelName(std::string(96, 'm')), absl::OkStatus());
  EXPECT_EQ(ReasonOf(CheckModelName(std::string(97, 'm'))), "BAD_NAME");
  EXPECT_EQ(CheckNodeName("a\x1b").message().find('\x1b'), absl::string_view::npos);
}

TEST(Names, ARepositoryIsTwoNames) {
  EXPECT_EQ(CheckRepositoryName("meta-llama/Llama-3.2-1B"), absl::OkStatus());
  for (const char* name : {"", "model", "a/", "/b", "a/b/c", "-a/b", "a/-b", "../b", "a/ b"}) {
    EXPECT_EQ(ReasonOf(CheckRepositoryName(name)), "BAD_REPOSITORY") << name;
  }
}

}  // namespace
}  // namespace strata
