// strata top: rates between two pictures, what fits a terminal, and the view as it runs.
#include "cli/top.h"

#include <gmock/gmock.h>

#include <chrono>
#include <sstream>
#include <thread>

#include "strata/v1/admin.pb.h"
#include "tests/cli/command_fixture.h"
#include "tests/eventually.h"

namespace strata::cli {
namespace {

using nlohmann::json;
using std::chrono::milliseconds;
using std::chrono::steady_clock;
using testing::CliResult;
using ::testing::HasSubstr;
using ::testing::Not;

v1::GetStatusResponse Picture(const std::vector<std::pair<std::string, uint32_t>>& generated) {
  v1::GetStatusResponse status;
  for (const auto& [id, tokens] : generated) {
    v1::Session* session = status.add_sessions();
    session->set_request_id(id);
    session->set_state("decode");
    session->set_generated_tokens(tokens);
  }
  return status;
}

TEST(TopRates, AreWhatCameBetweenTwoPictures) {
  const steady_clock::time_point begin{};
  TokenRates rates;
  rates.Update(Picture({{"a", 10}, {"b", 100}, {"gone", 7}}), begin);
  EXPECT_EQ(rates.Of("a"), std::nullopt);
  EXPECT_EQ(rates.total(), std::nullopt);
  rates.Update(Picture({{"a", 30}, {"b", 100}, {"new", 4}}), begin + milliseconds(2000));
  EXPECT_EQ(rates.Of("a"), 10.0);
  EXPECT_EQ(rates.Of("b"), 0.0);
  EXPECT_EQ(rates.Of("new"), std::nullopt);
  EXPECT_EQ(rates.Of("gone"), std::nullopt);
  EXPECT_EQ(rates.total(), 12.0);  // The new one's tokens came since then too.
}

TEST(TopRates, ARequestThatTookAnothersPlaceBeginsAnew) {
  const steady_clock::time_point begin{};
  TokenRates rates;
  rates.Update(Picture({{"a", 50}}), begin);
  rates.Update(Picture({{"a", 3}}), begin + milliseconds(1000));
  EXPECT_EQ(rates.Of("a"), std::nullopt);
  EXPECT_EQ(rates.total(), 3.0);
}

TEST(TopRates, OfAStageAreSharesOfTime) {
  const steady_clock::time_point begin{};
  v1::GetStatusResponse status;
  v1::StageUse* stage = status.add_stages();
  stage->set_model("m");
  stage->set_stage(1);
  const auto count = [&](double compute_s, double bubble_s, uint64_t rows) {
    stage->set_compute_s(compute_s);
    stage->set_bubble_s(bubble_s);
    stage->set_rows(rows);
  };
  TokenRates rates;
  count(10, 4, 1000);
  rates.Update(status, begin);
  EXPECT_FALSE(rates.Of(*stage).has_value());
  count(11.5, 4.25, 1100);
  rates.Update(status, begin + milliseconds(2000));
  ASSERT_TRUE(rates.Of(*stage).has_value());
  EXPECT_DOUBLE_EQ(rates.Of(*stage)->busy, 0.75);
  EXPECT_DOUBLE_EQ(rates.Of(*stage)->bubble, 0.125);
  EXPECT_DOUBLE_EQ(rates.Of(*stage)->rows_per_s, 50);
  count(0.5, 0, 7);  // It was loaded anew.
  rates.Update(status, begin + milliseconds(4000));
  EXPECT_FALSE(rates.Of(*stage).has_value());
}

TEST(TopScreen, CutsLinesAndWhatIsBelowAndClearsTheRest) {
  EXPECT_EQ(Screen("one\ntwo\n", {.rows = 5, .columns = 80}), "\x1b[Hone\x1b[K\r\ntwo\x1b[K\x1b[J");
  EXPECT_EQ(Screen("ab\xc3\xa9z\n", {.rows = 5, .columns = 3}), "\x1b[Hab\xc3\xa9\x1b[K\x1b[J");
  EXPECT_EQ(Screen("1\n2\n3\n4\n", {.rows = 3, .columns = 80}),
            "\x1b[H1\x1b[K\r\n2\x1b[K\r\n... 2 more lines\x1b[K\x1b[J");
  EXPECT_EQ(Screen("1\n2\n3\n", {.rows = 3, .columns = 80}),
            "\x1b[H1\x1b[K\r\n2\x1b[K\r\n3\x1b[K\x1b[J");
}

class CliTop : public CommandTest {
 protected:
  // Runs it, does each thing once what was printed holds what it waits for, and presses Ctrl-C at
  // the end.
  struct Then {
    std::string text;
    std::function<void()> act = nullptr;
  };
  CliResult RunUntil(const std::vector<Then>& all, const std::vector<std::string>& args) {
    std::thread person([this, &all] {
      for (const Then& then : all) {
        EXPECT_TRUE(Eventually([&] {
          return cli_.OutSoFar().find(then.text) != std::string::npos;
        })) << then.text;
        if (then.act != nullptr) then.act();
      }
      EXPECT_TRUE(cli_.interrupts.Fire());
    });
    CliResult result = Run(args);
    person.join();
    return result;
  }
};

TEST_F(CliTop, OnceShowsNodesMemoryRequestsAndWhatIsWrong) {
  const std::string text = Text({"top", "--once"});
  for (const char* part :
       {"Strata 9.9 at 127.0.0.1:", "1 request: 1 ", "serving", "recall", "MEMORY IN USE",
        "KV IN USE", "BUBBLES", "r-1", "[#...................]   0 %",
        "! node c is lost; do: start strata-worker on c"}) {
    EXPECT_THAT(text, HasSubstr(part));
  }
  EXPECT_THAT(text, Not(HasSubstr("\x1b")));
  const json document = Document({"top", "--once"});
  EXPECT_EQ(document["nodes"].size(), 2u);
  EXPECT_TRUE(document["nodes"][0].contains("used_bytes"));
  EXPECT_EQ(document["nodes"][0]["models"][0], "recall layers 0-1");
  EXPECT_EQ(document["kv"][0]["live"], 3);
  EXPECT_EQ(document["stages"][0]["compute_s"], 2.5);
  EXPECT_TRUE(document["stages"][0]["busy_share"].is_null());
  EXPECT_EQ(document["problems"][0]["what"], "node c is lost");
  EXPECT_TRUE(document["sessions"][0]["tokens_per_s"].is_null());
  EXPECT_TRUE(document["tokens_per_s"].is_null());
}

TEST_F(CliTop, JsonIsOneDocumentARefreshUntilCtrlC) {
  const CliResult result = RunUntil({{"}\n{"}}, {"top", "--json"});
  EXPECT_EQ(result.code, kExitDone) << result.err;
  std::istringstream lines(result.out);
  std::vector<json> documents;
  for (std::string line; std::getline(lines, line);) {
    documents.push_back(json::parse(line));
  }
  ASSERT_GE(documents.size(), 2u);
  EXPECT_TRUE(documents[0]["tokens_per_s"].is_null());
  EXPECT_EQ(documents[1]["tokens_per_s"], 0);
  EXPECT_EQ(documents[1]["sessions"][0]["tokens_per_s"], 0);
}

TEST_F(CliTop, ATerminalShowsTheNewestOnAScreenOfItsOwn) {
  cli_.terminal = true;
  const CliResult result = RunUntil({{"tokens/s"}}, {"top"});
  EXPECT_EQ(result.code, kExitDone) << result.err;
  EXPECT_THAT(result.out, ::testing::StartsWith("\x1b[?1049h"));
  EXPECT_THAT(result.out, ::testing::EndsWith("\x1b[?1049l"));
  EXPECT_THAT(result.out, HasSubstr("tokens/s"));
}

TEST_F(CliTop, ATerminalSaysThatTheCoordinatorIsAwayAndGoesOn) {
  cli_.terminal = true;
  const CliResult result = RunUntil(
      {{"Strata 9.9", [this] { coordinator_.Stop(); }}, {"no coordinator answers"}}, {"top"});
  EXPECT_EQ(result.code, kExitDone) << result.err;
  EXPECT_THAT(result.out, HasSubstr("no coordinator answers at " + coordinator_.address()));
}

TEST_F(CliTop, WithoutATerminalACoordinatorThatGoesAwayIsAnError) {
  std::thread stopper([this] {
    EXPECT_TRUE(
        Eventually([this] { return cli_.OutSoFar().find("\"nodes\"") != std::string::npos; }));
    coordinator_.Stop();
  });
  const CliResult result = Run({"top", "--json"});
  stopper.join();
  EXPECT_EQ(result.code, kExitFailed);
  EXPECT_THAT(result.err, HasSubstr(coordinator_.address()));
  EXPECT_THAT(result.out, HasSubstr("\"nodes\""));
}

}  // namespace
}  // namespace strata::cli
