// Results that no stage may send: a fence, never a crash or a wrong token.
#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <utility>

#include "common/fingerprint.h"
#include "tests/coordinator/engine/sim_cluster.h"

namespace strata {
namespace {

std::vector<uint32_t> Answer(const SessionRequest& request, uint32_t tokens) {
  return OracleAnswer(request.prompt, tokens, 97);
}

// Each makes a well-formed result into one that no stage may send.
using Spoil = void (*)(ResultMessage*);

class GarbageResult : public testing::TestWithParam<std::pair<const char*, Spoil>> {};

TEST_P(GarbageResult, EndsInAFenceAndNeverInAWrongToken) {
  SimCluster cluster(MakeConfig(2));
  cluster.Start();
  cluster.Settle();
  const SessionRequest request = MakeRequest("r1", 20, 6);
  const auto sink = cluster.Submit(request);
  cluster.Deliver(0), cluster.Deliver(1);
  ASSERT_EQ(cluster.results.size(), 1u);
  const uint64_t epoch = cluster.engine().epoch();
  GetParam().second(&cluster.results.front());
  cluster.Deliver(2);
  EXPECT_EQ(cluster.engine().epoch(), epoch + 1);
  EXPECT_TRUE(sink->tokens.empty());
  cluster.RunToEnd();
  cluster.Settle();
  EXPECT_EQ(sink->tokens, Answer(request, 6));
  cluster.ExpectEmpty();
}

INSTANTIATE_TEST_SUITE_P(
    Results, GarbageResult,
    testing::Values(
        std::pair<const char*, Spoil>{
            "Gap", [](ResultMessage* r) { r->header.set_step(r->header.step() + 1); }},
        std::pair<const char*, Spoil>{
            "FutureEpoch", [](ResultMessage* r) { r->header.set_epoch(r->header.epoch() + 9); }},
        std::pair<const char*, Spoil>{
            "DigestsNobodyAskedFor",
            [](ResultMessage* r) { r->header.mutable_items(0)->add_layer_digests(); }},
        std::pair<const char*, Spoil>{"NoItems", [](ResultMessage* r) { r->header.clear_items(); }},
        std::pair<const char*, Spoil>{
            "MoreItems", [](ResultMessage* r) { *r->header.add_items() = r->header.items(0); }},
        std::pair<const char*, Spoil>{
            "OtherName",
            [](ResultMessage* r) {
              r->header.mutable_items(0)->mutable_sequence()->set_request_id("r2");
            }},
        std::pair<const char*, Spoil>{
            "OtherGeneration",
            [](ResultMessage* r) {
              r->header.mutable_items(0)->mutable_sequence()->set_generation(1);
            }},
        std::pair<const char*, Spoil>{
            "NoToken", [](ResultMessage* r) { r->header.mutable_items(0)->clear_tokens(); }},
        std::pair<const char*, Spoil>{
            "TwoTokens", [](ResultMessage* r) { r->header.mutable_items(0)->add_tokens(); }},
        std::pair<const char*, Spoil>{"TokenOutsideTheVocabulary",
                                      [](ResultMessage* r) {
                                        r->header.mutable_items(0)->mutable_tokens(0)->set_token_id(
                                            97);
                                      }},
        std::pair<const char*, Spoil>{
            "NanLogprob",
            [](ResultMessage*
                   r) { r->header.mutable_items(0)->mutable_tokens(0)->set_logprob(NAN); }},
        std::pair<const char*, Spoil>{
            "TopThatNobodyAskedFor",
            [](ResultMessage* r) { r->header.mutable_items(0)->mutable_tokens(0)->add_top(); }},
        std::pair<const char*, Spoil>{"Payload", [](ResultMessage* r) { r->payload.resize(97); }},
        std::pair<const char*, Spoil>{
            "PayloadRows",
            [](ResultMessage* r) { r->header.mutable_items(0)->set_payload_rows(1u << 31); }},
        std::pair<const char*, Spoil>{
            "RowLogprobs",
            [](ResultMessage* r) { r->header.mutable_items(0)->add_row_logprobs(); }},
        std::pair<const char*, Spoil>{"MoreCommands",
                                      [](ResultMessage* r) { r->header.add_commands(); }},
        std::pair<const char*, Spoil>{"NoStages",
                                      [](ResultMessage* r) { r->header.clear_stages(); }},
        std::pair<const char*, Spoil>{
            "StagesOutOfOrder",
            [](ResultMessage* r) { r->header.mutable_stages()->SwapElements(0, 1); }},
        std::pair<const char*, Spoil>{
            "NoPageCounts",
            [](ResultMessage* r) { r->header.mutable_stages(0)->clear_free_pages(); }},
        std::pair<const char*, Spoil>{
            "ErrorOfAStageThatIsNot",
            [](ResultMessage* r) {
              r->header.mutable_items(0)->mutable_error();
              r->header.mutable_items(0)->clear_tokens();
              r->header.mutable_items(0)->set_error_stage(2);
            }}),
    [](const auto& info) { return std::string(info.param.first); });

TEST(EngineGarbage, AnyBytesForAResultAreSurvived) {
  uint64_t random = 1;
  uint64_t accepted = 0;
  uint64_t faults = 0;
  for (int round = 0; round < 3000; ++round) {
    SimCluster cluster(MakeConfig(2));
    cluster.Start();
    cluster.Settle();
    SessionRequest request = MakeRequest("r1", 20, 3);
    request.return_logits = round % 2 == 0;
    const auto sink = cluster.Submit(request);
    cluster.Deliver(0), cluster.Deliver(1);
    ASSERT_EQ(cluster.results.size(), 1u);
    std::string bytes = cluster.results.front().header.SerializeAsString();
    for (uint64_t flips = 1 + round % 3; flips > 0; --flips) {
      random = Mix64(random + 1);
      bytes[random % bytes.size()] ^= static_cast<char>(1 << (random >> 32) % 8);
    }
    v1::StepResult header;
    if (!header.ParseFromString(bytes)) {
      continue;
    }
    cluster.results.front().header = header;
    cluster.Deliver(2);
    cluster.RunToEnd();
    EXPECT_TRUE(sink->ended());
    (cluster.Snapshot().counters.faults > 0 ? faults : accepted) += 1;
  }
  EXPECT_GT(faults, 100u);
  EXPECT_GT(accepted, 100u) << "times and values that cannot be checked";
}

}  // namespace
}  // namespace strata
