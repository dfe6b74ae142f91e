#include "worker/weights/kept_layers.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <memory>
#include <string>

#include "common/digest.h"
#include "common/layer_weights.h"
#include "common/status.h"

namespace strata {
namespace {

namespace fs = std::filesystem;
using testing::ElementsAre;
using testing::IsEmpty;

TEST(LayerWeightsKey, DependsOnTensorsAndNumericsAndNotOnTheirOrderOrKv) {
  const std::string key = LayerWeightsKey("cpu-2/w=bf16/kv=f16", true, false, {"a", "b"});
  EXPECT_EQ(LayerWeightsKey("cpu-2/w=bf16/kv=f32", true, false, {"b", "a", "b"}), key);
  EXPECT_NE(LayerWeightsKey("cpu-2/w=int8/kv=f16", true, false, {"a", "b"}), key);
  EXPECT_NE(LayerWeightsKey("cpu-2/w=bf16/kv=f16", false, false, {"a", "b"}), key);
  EXPECT_NE(LayerWeightsKey("cpu-2/w=bf16/kv=f16", true, true, {"a", "b"}), key);
  EXPECT_NE(LayerWeightsKey("cpu-2/w=bf16/kv=f16", true, false, {"a"}), key);
}

TEST(DigestPrefix, IsTheFirst64BitsOfADigestAndNothingElse) {
  EXPECT_EQ(DigestPrefix("0123456789abcdef" + std::string(48, '0')), 0x0123456789abcdefu);
  EXPECT_EQ(DigestPrefix("0123456789abcdef"), 0u);
  EXPECT_EQ(DigestPrefix("0123456789ABCDEF" + std::string(48, '0')), 0u);
}

TEST(KeptLayerText, IsReadAsItWasWrittenAndByNoOtherLayout) {
  const KeptLayer layer{.packed = {{Sha256Hex("a"), 12}}, .blobs = {{Sha256Hex("b"), 0}}};
  const std::string text = KeptLayerText(layer, "cpu avx2");
  const auto read = ParseKeptLayer(text, "cpu avx2").value();
  ASSERT_TRUE(read.has_value());
  ASSERT_EQ(read->packed.size(), 1u);
  EXPECT_EQ(read->packed[0].sha256, Sha256Hex("a"));
  EXPECT_EQ(read->packed[0].bytes, 12u);
  ASSERT_EQ(read->blobs.size(), 1u);
  EXPECT_FALSE(ParseKeptLayer(text, "cpu avx512").value().has_value());
  for (size_t cut = 0; cut < text.size(); ++cut) {
    const auto part = ParseKeptLayer(text.substr(0, cut), "cpu avx2");
    EXPECT_EQ(ReasonOf(part.status()), "CACHE_CORRUPT") << cut;
  }
}

class KeptLayersTest : public testing::Test {
 protected:
  KeptLayersTest()
      : directory_(fs::path(testing::TempDir()) /
                   (std::string("strata-kept-") +
                    testing::UnitTest::GetInstance()->current_test_info()->name())) {
    fs::remove_all(directory_);
    Reopen();
  }
  ~KeptLayersTest() override { fs::remove_all(directory_); }

  void Reopen(uint64_t limit = 0) {
    cache_ = WeightCache::Open(directory_.string(), limit).value();
    layers_ = std::make_unique<KeptLayers>(cache_.get(), "cpu avx2");
  }

  Blob Add(const std::string& bytes) {
    const Blob blob{Sha256Hex(bytes), bytes.size()};
    auto writer = cache_->Write(blob).value();
    EXPECT_TRUE(writer->Append(bytes).ok());
    EXPECT_TRUE(writer->Commit().ok());
    return blob;
  }

  const fs::path directory_;
  std::unique_ptr<WeightCache> cache_;
  std::unique_ptr<KeptLayers> layers_;
};

TEST_F(KeptLayersTest, ALayerIsKnownAfterARestartAndUntilOneOfItsFilesIsGone) {
  const std::string key = Sha256Hex("layer");
  const Blob blob = Add("a norm");
  layers_->Record(key, {.packed = {}, .blobs = {blob}});
  EXPECT_THAT(layers_->Keys(), ElementsAre(key));
  Reopen();
  EXPECT_THAT(layers_->Keys(), ElementsAre(key));
  fs::remove(directory_ / "sha256" / blob.sha256.substr(0, 2) / blob.sha256);
  Reopen();
  EXPECT_THAT(layers_->Keys(), IsEmpty());
  EXPECT_FALSE(fs::exists(directory_ / "layers" / key.substr(0, 2) / key)) << "it is of no use";
}

TEST_F(KeptLayersTest, ALayerWithoutItsPackedFileIsNotKept) {
  layers_->Record(Sha256Hex("layer"), {.packed = {{Sha256Hex("none"), 5}}, .blobs = {}});
  EXPECT_THAT(layers_->Keys(), IsEmpty());
}

TEST_F(KeptLayersTest, WhatIsPinnedSoftlyIsEvictedLastOfAll) {
  Reopen(100);
  const Blob soft = Add(std::string(40, 's'));
  const Blob other = Add(std::string(40, 'o'));
  const CachePin pin(cache_.get(), {soft}, CachePin::Kind::kSoft);
  {
    const CachePin hard(cache_.get(), {{Sha256Hex("wanted"), 60}});
    ASSERT_TRUE(cache_->MakeRoom().ok());
    EXPECT_TRUE(cache_->Find(soft.sha256).has_value());
    EXPECT_FALSE(cache_->Find(other.sha256).has_value());
  }
  const CachePin harder(cache_.get(), {{Sha256Hex("wanted"), 90}});
  ASSERT_TRUE(cache_->MakeRoom().ok()) << "a load comes before what is kept for later";
  EXPECT_FALSE(cache_->Find(soft.sha256).has_value());
}

}  // namespace
}  // namespace strata
