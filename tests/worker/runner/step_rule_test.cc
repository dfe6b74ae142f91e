// The step rule, per item: what is computed, what is rejected and how, and that a rejected item
// harms nobody.
#include "tests/worker/runner/chain.h"

namespace strata {
namespace {

using namespace strata::testing;  // NOLINT(google-build-using-namespace)

class StepRule : public ::testing::TestWithParam<uint32_t> {
 protected:
  StepRule() : chain_({.stages = GetParam()}), steps_(&chain_) {
    neighbour_.push_back(TokenOf(steps_.Run({Item(Name("n", 1), neighbour_, 0, 18)})));
  }

  // Runs `item` beside two good ones, of a live sequence and of a new one, which must not notice.
  ResultMessage RunWithNeighbours(const v1::StepItem& item) {
    const auto fresh = Prompt(6, 98);
    const v1::SequenceName fresh_name = Name("fresh", next_generation_++);
    const auto end = static_cast<uint32_t>(neighbour_.size());
    const ResultMessage result = steps_.Run(
        {Item(Name("n", 1), neighbour_, held_, end), item, Item(fresh_name, fresh, 0, 6)}, {});
    held_ = end;
    EXPECT_EQ(TokenOf(result, 0), ExpectedTokens(chain_.options().model, neighbour_, 1)[0]);
    EXPECT_EQ(TokenOf(result, 2), ExpectedTokens(chain_.options().model, fresh, 1)[0]);
    neighbour_.push_back(TokenOf(result, 0));
    return result;
  }

  // `item` is refused with this reason at stage 0, and leaves nothing.
  v1::ErrorDetail ExpectRefused(const v1::StepItem& item, absl::StatusCode code,
                                const std::string& reason) {
    const ResultMessage result = RunWithNeighbours(item);
    const v1::ItemResult& refused = result.header.items(1);
    EXPECT_EQ(refused.error().reason(), reason) << refused.error().message();
    EXPECT_EQ(refused.error().code(), static_cast<uint32_t>(code)) << reason;
    EXPECT_EQ(refused.error().node(), "node0");
    EXPECT_EQ(refused.error().request_id(), item.sequence().request_id());
    EXPECT_EQ(refused.error_stage(), 0u);
    EXPECT_EQ(refused.tokens_size(), 0);
    EXPECT_EQ(refused.payload_rows(), 0u);
    return refused.error();
  }

  Chain chain_;
  Steps steps_;
  std::vector<uint32_t> neighbour_ = Prompt(18, 99);
  uint32_t held_ = 18;
  uint64_t next_generation_ = 100;
};

INSTANTIATE_TEST_SUITE_P(Stages, StepRule, ::testing::Values(1, 3));

TEST_P(StepRule, AnExistingSequenceMustBeNamedAtItsLength) {
  const auto ids = Prompt(40, 1);
  steps_.Run({Item(Name("a", 2), ids, 0, 39)});
  for (const uint32_t position : {0u, 20u, 38u}) {
    const auto error = ExpectRefused(Item(Name("a", 2), ids, position, 40),
                                     absl::StatusCode::kFailedPrecondition, "POSITION_MISMATCH");
    EXPECT_EQ(error.facts().at("position"), std::to_string(position));
    EXPECT_EQ(error.facts().at("length"), "39");
  }
  EXPECT_EQ(TokenOf(steps_.Run({Item(Name("a", 2), ids, 39, 40)})),
            ExpectedTokens(chain_.options().model, ids, 1)[0]);
}

TEST_P(StepRule, AnExistingSequenceMustHoldTheTokensNamed) {
  const auto ids = Prompt(40, 1);
  steps_.Run({Item(Name("a", 2), ids, 0, 39)});
  auto others = ids;
  others[20] = (others[20] + 1) % 97;
  const auto error = ExpectRefused(Item(Name("a", 2), others, 39, 40),
                                   absl::StatusCode::kFailedPrecondition, "FINGERPRINT_MISMATCH");
  EXPECT_NE(error.facts().at("fingerprint"), error.facts().at("held_fingerprint"));
  EXPECT_EQ(error.hint(), "resend from 0");
  EXPECT_EQ(TokenOf(steps_.Run({Item(Name("a", 2), ids, 39, 40)})),
            ExpectedTokens(chain_.options().model, ids, 1)[0]);
}

// Another deployment, other weights or another numerics class show at position 0 already.
TEST_P(StepRule, TheFingerprintMustMatchAtPositionZeroToo) {
  const auto ids = Prompt(4, 1);
  v1::StepItem item = Item(Name("a", 2000), ids, 0, 4);
  item.set_fingerprint(FingerprintRoot(kDeployment, "other weights", kClass, "", 0));
  ExpectRefused(item, absl::StatusCode::kFailedPrecondition, "FINGERPRINT_MISMATCH");
}

TEST_P(StepRule, AMissingSequenceIsToBeResentFromZero) {
  const auto ids = Prompt(40, 1);
  const auto error = ExpectRefused(Item(Name("a", 1000), ids, 39, 40), absl::StatusCode::kNotFound,
                                   "SEQUENCE_NOT_FOUND");
  EXPECT_EQ(error.hint(), "resend from 0");
}

TEST_P(StepRule, AGenerationThatIsNotNewerThanTheNewestIsStale) {
  const auto ids = Prompt(10, 1);
  steps_.Run({Item(Name("a", 50), ids, 0, 10)});
  for (const uint64_t generation : {1u, 49u, 50u}) {
    const auto error = ExpectRefused(Item(Name("b", generation), ids, 0, 10),
                                     absl::StatusCode::kFailedPrecondition, "STALE_GENERATION");
    EXPECT_FALSE(error.facts().at("newest_generation").empty());
  }
  // Not even after what was newest was released.
  steps_.Run({}, {Release(Name("a", 50))});
  ExpectRefused(Item(Name("a", 50), ids, 0, 10), absl::StatusCode::kFailedPrecondition,
                "STALE_GENERATION");
}

TEST_P(StepRule, GenerationsOfOneIdCoexist) {
  const auto first = Prompt(20, 1);
  const auto second = Prompt(25, 2);
  const ModelSpec& model = chain_.options().model;
  steps_.Run({Item(Name("a", 2), first, 0, 19)});
  const ResultMessage result =
      steps_.Run({Item(Name("a", 3), second, 0, 25), Item(Name("a", 2), first, 19, 20)});
  EXPECT_EQ(TokenOf(result, 0), ExpectedTokens(model, second, 1)[0]);
  EXPECT_EQ(TokenOf(result, 1), ExpectedTokens(model, first, 1)[0]);
}

// Generations count over all ids, and creations are judged in the frame's order.
TEST_P(StepRule, CreationsOfOneFrameMustComeInOrderOfGenerations) {
  const auto ids = Prompt(5, 1);
  const ResultMessage result =
      steps_.Run({Item(Name("a", 3), ids, 0, 5), Item(Name("b", 2), ids, 0, 5)});
  EXPECT_EQ(ReasonOfItem(result, 0), "");
  EXPECT_EQ(ReasonOfItem(result, 1), "STALE_GENERATION");
}

TEST_P(StepRule, WhatIsNotImplementedIsRefusedByName) {
  const auto ids = Prompt(5, 1);
  uint64_t generation = 1000;
  auto refuse = [&](const char* reason, const std::function<void(v1::StepItem*)>& change) {
    v1::StepItem item = Item(Name("a", ++generation), ids, 0, 5);
    change(&item);
    next_generation_ = generation + 1;
    generation += 2;
    ExpectRefused(item, absl::StatusCode::kUnimplemented, reason);
  };
  refuse("LAST_STAGE_PAYLOAD_UNSUPPORTED",
         [](v1::StepItem* i) { i->set_last_stage_payload("mask"); });
  refuse("HIDDEN_ROWS_UNSUPPORTED",
         [](v1::StepItem* i) { i->set_rows_wanted(v1::ROWS_WANTED_HIDDEN); });
  refuse("ROWS_WANTED_UNSUPPORTED",
         [](v1::StepItem* i) { i->set_rows_wanted(static_cast<v1::RowsWanted>(9)); });
  refuse("ADAPTER_UNSUPPORTED", [](v1::StepItem* i) { i->mutable_params()->set_adapter_slot(1); });
  refuse("ROTARY_VARIANT_UNSUPPORTED",
         [](v1::StepItem* i) { i->mutable_params()->set_rotary_variant(1); });
  refuse("UNKNOWN_FIELD",
         [](v1::StepItem* i) { i->GetReflection()->MutableUnknownFields(i)->AddVarint(999, 1); });
  refuse("UNKNOWN_FIELD", [](v1::StepItem* i) {
    v1::SamplingParams* sampling = i->mutable_params()->mutable_sampling();
    sampling->GetReflection()->MutableUnknownFields(sampling)->AddVarint(999, 1);
  });
}

TEST_P(StepRule, ItemsThatMakeNoSenseAreRefused) {
  const auto ids = Prompt(5, 1);
  uint64_t generation = 1000;
  auto refuse = [&](const char* reason, const std::function<void(v1::StepItem*)>& change) {
    v1::StepItem item = Item(Name("a", ++generation), ids, 0, 5);
    change(&item);
    next_generation_ = generation + 1;
    generation += 2;
    ExpectRefused(item, absl::StatusCode::kInvalidArgument, reason);
  };
  refuse("SEQUENCE_NAME", [](v1::StepItem* i) { i->mutable_sequence()->clear_request_id(); });
  refuse("SEQUENCE_NAME",
         [](v1::StepItem* i) { i->mutable_sequence()->set_request_id(std::string(129, 'a')); });
  refuse("SEQUENCE_NAME", [](v1::StepItem* i) { i->mutable_sequence()->set_request_id("a\nb"); });
  refuse("SEQUENCE_NAME", [](v1::StepItem* i) { i->mutable_sequence()->set_generation(0); });
  refuse("NO_TOKENS", [](v1::StepItem* i) { i->clear_token_ids(); });
  refuse("TOKEN_OUT_OF_RANGE", [](v1::StepItem* i) { i->set_token_ids(2, 97); });
  refuse("TOKEN_OUT_OF_RANGE", [](v1::StepItem* i) { i->set_following_id(97); });
  refuse("ROWS_FROM", [](v1::StepItem* i) { i->set_rows_from(5); });
  refuse("SAMPLING_INCOMPLETE", [](v1::StepItem* i) { i->clear_params(); });
  refuse("SAMPLING_PARAMETER",
         [](v1::StepItem* i) { i->mutable_params()->mutable_sampling()->set_top_p(2); });
  refuse("TOP_LOGPROBS", [](v1::StepItem* i) { i->mutable_params()->set_top_logprobs(101); });
  refuse("STOP_IDS", [](v1::StepItem* i) { i->mutable_params()->add_stop_ids(97); });
  refuse("STOP_IDS", [](v1::StepItem* i) {
    for (int n = 0; n < 1025; ++n) i->mutable_params()->add_stop_ids(1);
  });
}

TEST_P(StepRule, NothingGoesBeyondTheContext) {
  Chain chain({.stages = GetParam(), .context = 24});
  Steps steps(&chain);
  const auto ids = Prompt(30, 1);
  steps.Run({Item(Name("a", 1), ids, 0, 20)});
  const ResultMessage result = steps.Run({Item(Name("a", 1), ids, 20, 25)});
  EXPECT_EQ(ReasonOfItem(result), "CONTEXT_EXCEEDED");
  EXPECT_EQ(result.header.items(0).error().limit(), "context=24");
  EXPECT_EQ(ReasonOfItem(steps.Run({Item(Name("a", 1), ids, 20, 24)})), "");
  v1::StepItem far = Item(Name("a", 1), ids, 24, 25);
  far.set_position(0xFFFFFFFF);
  EXPECT_EQ(ReasonOfItem(steps.Run({far})), "CONTEXT_EXCEEDED");
}

TEST_P(StepRule, TwoItemsOfOneSequenceInAStepAreRefusedByName) {
  const auto ids = Prompt(10, 1);
  const ResultMessage result =
      steps_.Run({Item(Name("a", 2), ids, 0, 9), Item(Name("a", 2), ids, 9, 10)});
  EXPECT_EQ(ReasonOfItem(result, 0), "");
  EXPECT_EQ(ReasonOfItem(result, 1), "SEQUENCE_TWICE");
  EXPECT_EQ(TokenOf(steps_.Run({Item(Name("a", 2), ids, 9, 10)})),
            ExpectedTokens(chain_.options().model, ids, 1)[0]);
}

TEST_P(StepRule, OutOfPagesIsAnItemErrorThatSaysHowMany) {
  Chain chain({.stages = GetParam(), .pages = {4}});
  Steps steps(&chain);
  const auto a = Prompt(40, 1);
  const auto b = Prompt(17, 2);
  ResultMessage result = steps.Run({Item(Name("a", 1), a, 0, 40), Item(Name("b", 2), b, 0, 17)});
  EXPECT_EQ(ReasonOfItem(result, 0), "");
  const v1::ErrorDetail error = result.header.items(1).error();
  EXPECT_EQ(error.reason(), "KV_PAGES");
  EXPECT_EQ(error.code(), static_cast<uint32_t>(absl::StatusCode::kResourceExhausted));
  EXPECT_EQ(error.node(), "node0");
  EXPECT_EQ(error.facts().at("asked"), "2");
  EXPECT_EQ(error.facts().at("free"), "1");
  EXPECT_EQ(error.facts().at("group"), "full");
  EXPECT_EQ(FreePages(result), 1u);
  // Nothing was created: the same name may begin once there is room.
  result = steps.Run({Item(Name("b", 2), b, 0, 17)}, {Release(Name("a", 1))});
  EXPECT_EQ(TokenOf(result), ExpectedTokens(chain.options().model, b, 1)[0]);
}

// Its rows stay where they were, as zeros, so that those of the others are found.
TEST(StepRuleOnTheWire, ARejectedItemTravelsOnAndItsRowsStayAsZeros) {
  Chain chain({.stages = 2});
  Steps steps(&chain);
  const auto ids = Prompt(6, 1);
  steps.Run({Item(Name("a", 1), ids, 0, 3), Item(Name("stale", 1), ids, 0, 2),
             Item(Name("b", 2), ids, 0, 4)});
  const StepMessage& sent = chain.sent(0);
  EXPECT_EQ(sent.header.rows(), 9u);
  ASSERT_EQ(sent.payload.size(), 9u * kHashHidden);
  EXPECT_EQ(sent.header.items(1).error().reason(), "STALE_GENERATION");
  for (size_t i = 0; i < sent.payload.size(); ++i) {
    const bool rejected = i >= 3 * kHashHidden && i < 5 * kHashHidden;
    // Sums of four parts of a hash: no row of the others is all zeros.
    if (rejected) {
      EXPECT_EQ(sent.payload[i], 0.0f);
    }
  }
  EXPECT_NE(sent.payload[0], 0.0f);
  EXPECT_NE(sent.payload[5 * kHashHidden], 0.0f);
  EXPECT_EQ(chain.shard(0).rows_computed(), 7u);
  EXPECT_EQ(chain.shard(1).rows_computed(), 7u);
}

TEST(StepRuleOnTheWire, TheFirstStageThatRejectsIsTheOneReported) {
  Chain chain({.stages = 3});
  Steps steps(&chain);
  const auto ids = Prompt(6, 1);
  steps.Run({Item(Name("a", 1), ids, 0, 5)});
  chain.runner(1).DropAllSequences();
  chain.runner(2).DropAllSequences();
  const ResultMessage result = steps.Run({Item(Name("a", 1), ids, 5, 6)});
  EXPECT_EQ(ReasonOfItem(result), "SEQUENCE_NOT_FOUND");
  EXPECT_EQ(result.header.items(0).error_stage(), 1u);
  EXPECT_EQ(result.header.items(0).error().node(), "node1");
  EXPECT_EQ(chain.runner(2).stats().items_rejected, 0u);
  EXPECT_EQ(chain.runner(1).stats().items_rejected, 1u);
  EXPECT_EQ(chain.runner(0).stats().items_computed, 2u);
}

TEST(StepRuleOnTheWire, LogitsThatFillNoFrameAreRefused) {
  // 2^22 values a row: 18 rows fill what a frame may carry.
  ModelSpec model = HashModel(1, {{}}, 1 << 22);
  Chain chain({.model = model});
  Steps steps(&chain);
  const auto ids = Prompt(40, 1);
  v1::StepItem item = Item(Name("a", 1), ids, 0, 40);
  item.set_rows_wanted(v1::ROWS_WANTED_LOGITS);
  const ResultMessage result = steps.Run({item});
  EXPECT_EQ(ReasonOfItem(result), "LOGITS_ROWS");
  EXPECT_EQ(result.header.items(0).error().limit(), "logits_rows=18");
  EXPECT_EQ(chain.shard(0).rows_computed(), 0u);
}

// A large vocabulary makes the stage read logits in several parts.
TEST(StepRuleOnTheWire, LogitsReadInPartsAreTheSame) {
  ModelSpec model = HashModel(1, {{}}, 3 << 20);
  Chain chain({.model = model});
  Steps steps(&chain);
  const auto ids = Prompt(7, 1);
  v1::StepItem item = Item(Name("a", 1), ids, 0, 7);
  item.set_rows_wanted(v1::ROWS_WANTED_LOGITS);
  const ResultMessage result = steps.Run({item});
  ASSERT_EQ(result.header.items(0).payload_rows(), 7u);
  ASSERT_EQ(result.payload.size(), size_t{7} * model.vocab);
  model.vocab = 5;
  const auto want = HashLogits(model, ids);
  for (size_t row = 0; row < 7; ++row) {
    for (size_t id = 0; id < 5; ++id) {
      EXPECT_EQ(result.payload[row * (3 << 20) + id], want[row][id]);
    }
  }
}

}  // namespace
}  // namespace strata
