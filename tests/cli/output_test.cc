#include "cli/output.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <sstream>

#include "cli/progress.h"

namespace strata::cli {
namespace {

std::string Printed(const Json& document) {
  std::ostringstream out;
  WriteJson(document, &out);
  return out.str();
}

TEST(Output, FloatsReadBackToTheSameBitsWithTheFewestDigits) {
  uint32_t bits = 1;
  for (int i = 0; i < 20000; ++i) {
    bits = bits * 1664525u + 1013904223u;
    const float value = std::bit_cast<float>(bits);
    if (!std::isfinite(value)) continue;
    std::string text = Printed(Json(value));
    text.pop_back();
    EXPECT_EQ(std::strtof(text.c_str(), nullptr), value) << text;
    char fewer[64];
    std::snprintf(fewer, sizeof(fewer), "%.9g", value);
    EXPECT_LE(text.size(), std::string(fewer).size() + 4) << fewer;
  }
  EXPECT_EQ(Printed(Json(0.1f)), "0.1\n");
  EXPECT_EQ(Printed(Json(1e-7f)), "1e-07\n");
  EXPECT_EQ(Printed(Json(NAN)), "null\n");
}

TEST(Output, DocumentsKeepTheirOrderAndSurviveBadText) {
  EXPECT_EQ(
      Printed({{"z", 1}, {"a", {1.5f, nullptr, true}}, {"u", uint64_t{18446744073709551615u}}}),
      "{\"z\":1,\"a\":[1.5,null,true],\"u\":18446744073709551615}\n");
  EXPECT_EQ(Printed(Json("a\"\n\xff")), "\"a\\\"\\n\xEF\xBF\xBD\"\n");
  EXPECT_EQ(Printed(Json::object()), "{}\n");
}

TEST(Output, TablesAlign) {
  Table table({"NAME", ">N"});
  table.AddRow({"é", "1"});
  table.AddRow({"abcdef", "100"});
  std::ostringstream out;
  table.Print(&out, " ");
  EXPECT_EQ(out.str(), " NAME      N\n é         1\n abcdef  100\n");
}

TEST(Output, NumbersForPeople) {
  EXPECT_EQ(Rounded(0.01234), "0.012");
  EXPECT_EQ(Rounded(1.234), "1.23");
  EXPECT_EQ(Rounded(12.34), "12.3");
  EXPECT_EQ(Rounded(123.4), "123");
  EXPECT_EQ(Rounded(0), "0");
  EXPECT_EQ(Rounded(INFINITY), "-");
  EXPECT_EQ(Counted(1, "token"), "1 token");
  EXPECT_EQ(Counted(2, "token"), "2 tokens");
}

TEST(Progress, BarsSayShareAndSizes) {
  const Bar bar{
      .label = "a", .phase = "fetching", .done_bytes = 1 << 20, .total_bytes = 4 << 20, .note = ""};
  EXPECT_EQ(FormatBar(bar, 3, true),
            "a    fetching    [#######.....................]  25 %  1.0 MiB of 4.0 MiB");
  EXPECT_EQ(
      FormatBar({.label = "a", .phase = "ready", .done_bytes = 9, .total_bytes = 4, .note = "n"}, 1,
                false),
      "a  ready       100 %  4 B of 4 B  n")
      << "never above 100 %";
}

TEST(Progress, LogsAreSparseAndTerminalsRedrawn) {
  std::ostringstream log;
  Progress to_log(&log, /*terminal=*/false);
  for (uint64_t i = 0; i < 1000; ++i) {
    to_log.Show({{.label = "a",
                  .phase = i < 500 ? "fetching" : "packing",
                  .done_bytes = i,
                  .total_bytes = 1000,
                  .note = ""}});
  }
  to_log.Finish();
  const std::string text = log.str();
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 2) << text;

  std::ostringstream screen;
  Progress to_screen(&screen, /*terminal=*/true);
  to_screen.Show(
      {{.label = "a", .phase = "fetching", .done_bytes = 1, .total_bytes = 10, .note = ""}});
  to_screen.Show(
      {{.label = "a", .phase = "ready", .done_bytes = 10, .total_bytes = 10, .note = ""}});
  to_screen.Finish();
  EXPECT_NE(screen.str().find("\x1b[1A"), std::string::npos) << "drawn over the line before";
  EXPECT_NE(screen.str().find("100 %"), std::string::npos) << "the newest picture stays";
}

TEST(CliOutput, CellsAreWhatATerminalMayShow) {
  Table table({"NAME", "WHAT"});
  table.AddRow({"a\x1b[2J\nb", std::string(100'000, 'x')});
  std::ostringstream out;
  table.Print(&out);
  EXPECT_EQ(out.str().find('\x1b'), std::string::npos);
  EXPECT_NE(out.str().find("a\\x1b[2J\\nb  xxx"), std::string::npos);
  EXPECT_LT(out.str().size(), 2000u);
}

}  // namespace
}  // namespace strata::cli
