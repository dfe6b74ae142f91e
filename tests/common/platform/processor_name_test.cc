#include "common/platform/processor_name.h"

#include <gtest/gtest.h>

#include <sstream>
#include <string>

namespace strata {
namespace {

std::string NameIn(const std::string& text) {
  std::istringstream file(text);
  return ProcessorNameIn(&file);
}

TEST(ProcessorName, IsWhatTheFirstProcessorIsCalled) {
  EXPECT_EQ(NameIn("processor\t: 0\nmodel name\t: AMD EPYC 9B14 96-Core  \nflags : a\n"
                   "model name\t: another\n"),
            "AMD EPYC 9B14 96-Core");
}

TEST(ProcessorName, IsEmptyWhereNothingSaysIt) {
  EXPECT_EQ(NameIn(""), "");
  EXPECT_EQ(NameIn("processor : 0\nBogoMIPS : 50\n"), "");
  EXPECT_EQ(NameIn("model name\nmodel name\t:   \n"), "");
}

TEST(ProcessorName, IsShort) {
  EXPECT_EQ(NameIn("model name : " + std::string(1000, 'x')), std::string(64, 'x'));
}

}  // namespace
}  // namespace strata
