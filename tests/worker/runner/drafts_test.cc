// Drafted tokens at the stages: what is sampled behind them is what single steps sample, and what
// came out otherwise is cut off by a Truncate that names what is kept.
#include <functional>
#include <set>
#include <string>

#include "common/token_mask_form.h"
#include "tests/worker/runner/chain.h"

namespace strata {
namespace {

using namespace strata::testing;  // NOLINT(google-build-using-namespace)

// The words of the tokens that may follow these; none: any.
using Masks = std::function<std::vector<uint32_t>(std::span<const uint32_t>)>;

// Another seventh of the tokens behind each list of them.
std::vector<uint32_t> ASeventh(std::span<const uint32_t> ids) {
  uint64_t state = 0;
  for (const uint32_t id : ids) {
    state = FingerprintLink(state, id);
  }
  std::vector<uint32_t> words(MaskWords(97), 0);
  for (uint32_t id = state % 7; id < 97; id += 7) {
    words[id / 32] |= uint32_t{1} << (id % 32);
  }
  return words;
}

// Steps whose items have masks.
class HeldSteps {
 public:
  HeldSteps(Chain* chain, Masks masks) : steps_(chain), masks_(std::move(masks)) {}

  // `item` ends with all of `ids`, the last `drafted` of them being drafts.
  ResultMessage Run(v1::StepItem item, std::span<const uint32_t> ids, uint32_t drafted,
                    std::vector<v1::StepCommand> commands = {}) {
    StepMessage frame = steps_.Frame({std::move(item)}, std::move(commands));
    for (size_t end = ids.size() - drafted; masks_ != nullptr && end <= ids.size(); ++end) {
      v1::StepItem* held = frame.header.mutable_items(0);
      *(held->has_mask() ? held->add_draft_masks() : held->mutable_mask()) =
          Add(masks_(ids.first(end)), &frame.header);
    }
    return steps_.Send(std::move(frame));
  }

 private:
  v1::TokenMaskName Add(const std::vector<uint32_t>& words, v1::StepFrame* frame) {
    v1::TokenMask* mask = frame->add_masks();
    *mask = EncodeTokenMask(words, 97);
    mask->mutable_name()->set_slot(slot_++ % 256);
    mask->mutable_name()->set_digest(TokenMaskDigest(words));
    return mask->name();
  }

  Steps steps_;
  const Masks masks_;
  uint32_t slot_ = 0;
};

// Of single steps: the tokens that a sequence with these parameters has, each as on the wire.
std::vector<v1::TokenLogprob> OneByOne(const ChainOptions& options,
                                       const v1::SequenceParams& params, std::vector<uint32_t> ids,
                                       uint32_t count, const Masks& masks) {
  Chain chain(options);
  HeldSteps steps(&chain, masks);
  std::vector<v1::TokenLogprob> tokens;
  uint32_t position = 0;
  while (tokens.size() < count) {
    v1::StepItem item = Item(Name("a", 1), ids, position, static_cast<uint32_t>(ids.size()));
    if (position == 0) {
      *item.mutable_params() = params;
    }
    position = static_cast<uint32_t>(ids.size());
    const ResultMessage result = steps.Run(std::move(item), ids, 0);
    TokenOf(result);
    tokens.push_back(result.header.items(0).tokens(0));
    ids.push_back(tokens.back().token_id());
  }
  return tokens;
}

class Drafts : public ::testing::TestWithParam<uint32_t> {
 protected:
  explicit Drafts(ModelSpec model = HashModel(6)) {
    options_.model = std::move(model);
    options_.stages = GetParam();
    options_.pages.assign(options_.model.kv_groups.size(), 64);
  }

  // Computes an answer by steps with drafts, `right` of each of which are what comes, and returns
  // its tokens. Pages are as the length asks.
  std::vector<v1::TokenLogprob> WithDrafts(const v1::SequenceParams& params,
                                           std::vector<uint32_t> ids,
                                           const std::vector<v1::TokenLogprob>& expected,
                                           uint32_t drafted, uint32_t right, bool largest = false) {
    Chain chain(options_);
    if (largest) {
      chain.shard(options_.stages - 1).FindLargest();
    }
    HeldSteps steps(&chain, masks_);
    std::vector<v1::TokenLogprob> tokens;
    uint32_t position = 0;
    std::vector<v1::StepCommand> commands;
    while (tokens.size() < expected.size()) {
      std::vector<uint32_t> guessed = ids;
      for (uint32_t i = 0; i < drafted; ++i) {
        const size_t at = tokens.size() + i;
        const uint32_t comes = at < expected.size() ? expected[at].token_id() : 1;
        guessed.push_back(i < right ? comes : (comes + 1) % 97);
      }
      v1::StepItem item =
          Item(Name("a", 1), guessed, position, static_cast<uint32_t>(guessed.size()));
      item.set_draft_tokens(drafted);
      if (position == 0) {
        *item.mutable_params() = params;
      }
      const ResultMessage result =
          steps.Run(std::move(item), guessed, drafted, std::exchange(commands, {}));
      const v1::ItemResult& made = result.header.items(0);
      EXPECT_FALSE(made.has_error()) << made.error().ShortDebugString();
      EXPECT_GE(made.tokens_size(), 1);
      for (const v1::CommandResult& command : result.header.commands()) {
        EXPECT_FALSE(command.has_error()) << command.error().ShortDebugString();
      }
      if (HasFailure() || made.has_error()) {
        break;
      }
      position = static_cast<uint32_t>(ids.size()) + static_cast<uint32_t>(made.tokens_size()) - 1;
      for (const v1::TokenLogprob& token : made.tokens()) {
        tokens.push_back(token);
        ids.push_back(token.token_id());
      }
      if (position < guessed.size()) {
        commands.push_back(Truncate(Name("a", 1), std::span(ids).first(position)));
      }
    }
    tokens.resize(std::min(tokens.size(), expected.size()));
    return tokens;
  }

  void ExpectSame(const v1::SequenceParams& params, const std::vector<uint32_t>& ids,
                  uint32_t count) {
    const std::vector<v1::TokenLogprob> expected = OneByOne(options_, params, ids, count, masks_);
    for (const uint32_t drafted : {1u, 4u, 15u}) {
      for (const uint32_t right : std::set<uint32_t>{0, 1, drafted / 2, drafted}) {
        for (const bool largest : {false, true}) {
          const auto tokens = WithDrafts(params, ids, expected, drafted, right, largest);
          ASSERT_EQ(tokens.size(), expected.size());
          for (size_t i = 0; i < tokens.size(); ++i) {
            EXPECT_EQ(tokens[i].SerializeAsString(), expected[i].SerializeAsString())
                << drafted << " " << right << " " << i;
          }
        }
      }
    }
  }

  v1::SequenceParams Params(uint32_t prompt) {
    v1::SequenceParams params = Greedy();
    params.set_prompt_length(prompt);
    return params;
  }

  ChainOptions options_;
  Masks masks_;
};

INSTANTIATE_TEST_SUITE_P(Stages, Drafts, ::testing::Values(1, 3));

TEST_P(Drafts, AreNotNoticedByGreedyAnswers) { ExpectSame(Params(20), Prompt(20, 1), 40); }

TEST_P(Drafts, AreNotNoticedBySampledAnswersWithPenalties) {
  v1::SequenceParams params = Params(20);
  v1::SamplingParams* sampling = params.mutable_sampling();
  sampling->set_temperature(0.9f);
  sampling->set_top_p(0.95f);
  sampling->set_repetition_penalty(1.2f);
  sampling->set_frequency_penalty(0.5f);
  sampling->set_presence_penalty(0.3f);
  params.set_logprobs(true);
  params.set_top_logprobs(4);
  ExpectSame(params, Prompt(20, 2), 40);
}

TEST_P(Drafts, AreNotNoticedWhereEndTokensAreBarredAtFirst) {
  v1::SequenceParams params = Params(20);
  params.set_min_tokens(17);
  for (const uint32_t id : {3u, 14u, 15u, 92u, 65u, 35u, 89u, 79u, 32u, 38u, 46u}) {
    params.add_stop_ids(id);
  }
  ExpectSame(params, Prompt(20, 3), 40);
}

// A mask behind each draft, which bars what the one before it may admit.
TEST_P(Drafts, AreNotNoticedByAnswersThatAreHeld) {
  masks_ = ASeventh;
  ExpectSame(Params(20), Prompt(20, 4), 40);
  v1::SequenceParams params = Params(20);
  v1::SamplingParams* sampling = params.mutable_sampling();
  sampling->set_temperature(1.1f);
  sampling->set_top_p(0.95f);
  sampling->set_repetition_penalty(1.2f);
  params.set_logprobs(true);
  params.set_top_logprobs(4);
  ExpectSame(params, Prompt(20, 5), 40);
}

class WindowDrafts : public Drafts {
 protected:
  WindowDrafts() : Drafts(HashModel(6, {{KvKind::kFull, 0}, {KvKind::kWindow, 20}})) {}
};

INSTANTIATE_TEST_SUITE_P(Stages, WindowDrafts, ::testing::Values(1, 3));

// Windows are freed behind what is known, not behind what was drafted.
TEST_P(WindowDrafts, AreCutOffAlsoWhereLayersHaveAWindow) {
  ExpectSame(Params(30), Prompt(30, 1), 60);
}

// A whole item that wants nothing but its samples, with a token before the first draft.
TEST_P(Drafts, AreRefusedWhereTheyMakeNoSense) {
  Chain chain(options_);
  Steps steps(&chain);
  const auto ids = Prompt(6, 1);
  uint64_t number = 0;
  const auto reason = [&](const std::function<void(v1::StepItem*)>& change) {
    ++number;
    v1::StepItem item = Item(Name("a", number), ids, 0, 6);
    item.set_draft_tokens(2);
    change(&item);
    return ReasonOfItem(steps.Run({item}));
  };
  EXPECT_EQ(reason([](v1::StepItem*) {}), "");
  for (const uint32_t drafts : {6u, 7u, ~0u}) {
    EXPECT_EQ(reason([&](v1::StepItem* i) { i->set_draft_tokens(drafts); }), "DRAFT_TOKENS");
  }
  EXPECT_EQ(reason([](v1::StepItem* i) { i->set_sample(false); }), "DRAFT_TOKENS");
  EXPECT_EQ(reason([](v1::StepItem* i) { i->set_following_id(1); }), "DRAFT_TOKENS");
  EXPECT_EQ(reason([](v1::StepItem* i) { i->set_digest_layers(true); }), "DRAFT_TOKENS");
  EXPECT_EQ(reason([](v1::StepItem* i) { i->set_rows_wanted(v1::ROWS_WANTED_LOGITS); }),
            "DRAFT_TOKENS");
  EXPECT_EQ(reason([](v1::StepItem* i) { i->set_rows_wanted(v1::ROWS_WANTED_LOGPROBS); }),
            "DRAFT_TOKENS");
  // Masks behind drafts: of each, where there is one before them, and else of none.
  EXPECT_EQ(reason([](v1::StepItem* i) { i->mutable_mask()->set_slot(0); }), "DRAFT_MASKS");
  EXPECT_EQ(reason([](v1::StepItem* i) { i->add_draft_masks(); }), "DRAFT_MASKS");
  for (const int masks : {1, 3}) {
    EXPECT_EQ(reason([&](v1::StepItem* i) {
                i->mutable_mask()->set_slot(0);
                for (int m = 0; m < masks; ++m) i->add_draft_masks();
              }),
              "DRAFT_MASKS");
  }
}

// What a wrong draft makes of the rows behind it is nobody's error.
TEST_P(Drafts, WhatIsBehindAWrongOneIsNotLookedAt) {
  constexpr uint32_t kPoison = 96;
  Chain chain(options_);
  chain.shard(options_.stages - 1).PoisonToken(kPoison, 5);
  Steps steps(&chain);
  const auto ids = Prompt(12, 1, kPoison);
  auto guessed = ids;
  guessed.push_back(kPoison);
  guessed.push_back(3);
  v1::StepItem item = Item(Name("a", 1), guessed, 0, 14);
  item.set_draft_tokens(2);
  item.mutable_params()->set_prompt_length(12);
  EXPECT_EQ(TokenOf(steps.Run({item})), ExpectedTokens(options_.model, ids, 1)[0]);
}

}  // namespace
}  // namespace strata
