// Items that ask what every layer made of their rows.
#include "common/model/row_digest.h"
#include "tests/worker/runner/chain.h"

namespace strata {
namespace {

using namespace strata::testing;  // NOLINT(google-build-using-namespace)

constexpr uint32_t kLayers = 6;

std::vector<float> ValuesOf(const HashRow& row) {
  std::vector<float> values;
  for (uint32_t i = 0; i < kHashHidden; ++i) {
    values.push_back(static_cast<float>(row.state >> (16 * i) & 0xFFFF));
  }
  return values;
}

// By layer and position, from the token list alone; the logits' last.
std::vector<std::vector<uint64_t>> Expected(std::span<const uint32_t> ids) {
  std::vector<std::vector<uint64_t>> digests;
  std::vector<HashRow> rows;
  for (const uint32_t id : ids) {
    rows.push_back(HashEmbed(id));
  }
  for (uint32_t layer = 0; layer < kLayers; ++layer) {
    std::vector<uint64_t>& of_layer = digests.emplace_back();
    HashRow seen;
    for (uint32_t p = 0; p < rows.size(); ++p) {
      HashSee(HashKv(rows[p], layer, p), &seen);
      rows[p] = HashMlp(HashAttend(rows[p], seen, layer), layer);
      of_layer.push_back(RowDigest(ValuesOf(rows[p])));
    }
  }
  std::vector<uint64_t>& head = digests.emplace_back();
  for (const std::vector<float>& logits : HashLogits(HashModel(kLayers), ids)) {
    head.push_back(RowDigest(logits));
  }
  return digests;
}

v1::StepItem DigestItem(const v1::SequenceName& name, std::span<const uint32_t> ids,
                        uint32_t position, uint32_t end) {
  v1::StepItem item = Item(name, ids, position, end);
  item.set_digest_layers(true);
  return item;
}

class LayerDigests : public ::testing::TestWithParam<uint32_t> {
 protected:
  // Adds an item's digests to those of the positions before.
  static void Add(const v1::ItemResult& item, std::vector<std::vector<uint64_t>>* digests) {
    ASSERT_FALSE(item.has_error()) << item.error().ShortDebugString();
    digests->resize(kLayers + 1);
    ASSERT_EQ(item.layer_digests_size(), static_cast<int>(kLayers) + 1);
    for (uint32_t layer = 0; layer <= kLayers; ++layer) {
      const v1::LayerDigest& digest = item.layer_digests(static_cast<int>(layer));
      EXPECT_EQ(digest.layer(), layer);
      (*digests)[layer].insert((*digests)[layer].end(), digest.rows().begin(), digest.rows().end());
    }
  }

  const std::vector<uint32_t> ids_ = Prompt(45, 1);
  Chain chain_{{.stages = GetParam()}};
  Steps steps_{&chain_};
};

TEST_P(LayerDigests, AreThoseOfTheTokenListInEveryChunking) {
  uint64_t generation = 0;
  for (const uint32_t chunk : {1u, 7u, 45u}) {
    const v1::SequenceName name = Name("a", ++generation);
    std::vector<std::vector<uint64_t>> digests;
    for (uint32_t at = 0; at < 45; at += chunk) {
      const uint32_t end = std::min(at + chunk, 45u);
      v1::StepItem item = DigestItem(name, ids_, at, end);
      item.set_sample(end == 45);
      Add(steps_.Run({item}).header.items(0), &digests);
    }
    EXPECT_EQ(digests, Expected(ids_)) << chunk;
  }
}

TEST_P(LayerDigests, ComeForThoseThatAskAlone) {
  const std::vector<uint32_t> other = Prompt(20, 2);
  v1::StepItem logits = Item(Name("c", 3), other, 0, 20);
  logits.set_rows_wanted(v1::ROWS_WANTED_LOGITS);
  logits.set_rows_from(18);
  const ResultMessage result =
      steps_.Run({Item(Name("a", 1), other, 0, 20), DigestItem(Name("b", 2), ids_, 0, 45), logits});
  EXPECT_EQ(result.header.items(0).layer_digests_size(), 0);
  EXPECT_EQ(result.header.items(2).layer_digests_size(), 0);
  std::vector<std::vector<uint64_t>> digests;
  Add(result.header.items(1), &digests);
  EXPECT_EQ(digests, Expected(ids_));
  // Who digests gets no logits by it, and the others what they asked for.
  EXPECT_EQ(result.header.items(1).payload_rows(), 0u);
  EXPECT_EQ(result.payload.size(), 2u * 97);
  EXPECT_EQ(TokenOf(result, 0), ExpectedTokens(chain_.options().model, other, 1)[0]);
  EXPECT_EQ(TokenOf(result, 1), ExpectedTokens(chain_.options().model, ids_, 1)[0]);
}

TEST_P(LayerDigests, OfAStepThatIsComputedAgainComeOnce) {
  chain_.shard(GetParam() - 1).FailNextRead();
  const ResultMessage result =
      steps_.Run({DigestItem(Name("a", 1), ids_, 0, 20), DigestItem(Name("b", 2), ids_, 0, 45)});
  std::vector<std::vector<uint64_t>> digests;
  Add(result.header.items(1), &digests);
  EXPECT_EQ(digests, Expected(ids_));
}

TEST_P(LayerDigests, OfAnItemThatFailedAreNone) {
  chain_.shard(0).PoisonToken(ids_[7], 0);
  const ResultMessage result = steps_.Run({DigestItem(Name("a", 1), ids_, 0, 45)});
  EXPECT_EQ(ReasonOfItem(result), "NON_FINITE");
  EXPECT_EQ(result.header.items(0).layer_digests_size(), 0);
}

INSTANTIATE_TEST_SUITE_P(Stages, LayerDigests, ::testing::Values(1, 2, 3, kLayers));

TEST(LayerDigestChecks, AnItemMustComeWithThoseOfTheLayersBefore) {
  const std::vector<uint32_t> ids = Prompt(10, 1);
  const auto refused = [&](const std::function<void(v1::StepItem*)>& spoil) {
    Chain chain({.stages = 2});
    Steps steps(&chain);
    StepMessage frame = steps.Frame({DigestItem(Name("a", 1), ids, 0, 10)});
    auto sent = chain.runner(0).Step(std::move(frame));
    StepMessage next = std::get<StepMessage>(*std::move(sent));
    spoil(next.header.mutable_items(0));
    auto result = chain.runner(1).Step(std::move(next));
    EXPECT_TRUE(result.ok()) << result.status();
    return ReasonOfItem(std::get<ResultMessage>(*std::move(result)));
  };
  EXPECT_EQ(refused([](v1::StepItem*) {}), "");
  EXPECT_EQ(refused([](v1::StepItem* item) { item->mutable_layer_digests()->RemoveLast(); }),
            "LAYER_DIGESTS");
  EXPECT_EQ(refused([](v1::StepItem* item) { item->add_layer_digests()->set_layer(3); }),
            "LAYER_DIGESTS");
  EXPECT_EQ(refused([](v1::StepItem* item) { item->mutable_layer_digests(1)->set_layer(0); }),
            "LAYER_DIGESTS");
  EXPECT_EQ(refused([](v1::StepItem* item) { item->mutable_layer_digests(2)->add_rows(1); }),
            "LAYER_DIGESTS");
  EXPECT_EQ(refused([](v1::StepItem* item) { item->set_digest_layers(false); }), "LAYER_DIGESTS");
}

}  // namespace
}  // namespace strata
