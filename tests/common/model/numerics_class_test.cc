#include "common/model/numerics_class.h"

#include <gtest/gtest.h>

#include <vector>

namespace strata {
namespace {

std::string Of(const std::vector<LayerNumerics>& stages) { return NumericsOfStages(stages); }

constexpr char kMixed[] = "cpu-2:0-9+mlx-1.cpu.0.32.4:10-31/w=bf16,head=bf16,act=f32/kv=f16";
constexpr char kCpu[] = "cpu-2/w=bf16,head=bf16,act=f32/kv=f16";

TEST(NumericsClass, NamesTheLayersOfEachKindWhereThereAreSeveral) {
  EXPECT_EQ(Of({{"cpu-2", 0, 31}}), "cpu-2");
  EXPECT_EQ(Of({{"cpu-2", 0, 9}, {"cpu-2", 10, 31}}), "cpu-2");
  EXPECT_EQ(Of({{"cpu-2", 0, 9}, {"mlx-1.cpu.0.32.4", 10, 31}}),
            "cpu-2:0-9+mlx-1.cpu.0.32.4:10-31");
  // How a kind's layers are divided does not show.
  EXPECT_EQ(Of({{"cpu-2", 0, 3}, {"cpu-2", 4, 9}, {"mlx-1", 10, 30}, {"cpu-2", 31, 31}}),
            "cpu-2:0-9+mlx-1:10-30+cpu-2:31-31");
  EXPECT_EQ(Of({}), "");
}

TEST(NumericsClass, SaysHowALayerIsComputed) {
  EXPECT_EQ(NumericsOfLayers(kMixed, 0, 9), "cpu-2");
  EXPECT_EQ(NumericsOfLayers(kMixed, 10, 10), "mlx-1.cpu.0.32.4");
  EXPECT_EQ(NumericsOfLayers(kMixed, 9, 10), "") << "of two kinds";
  EXPECT_EQ(NumericsOfLayers(kMixed, 31, 32), "") << "beyond the last";
  EXPECT_EQ(NumericsOfLayers(kCpu, 3, 400), "cpu-2");
  EXPECT_EQ(ClassOfLayers(kMixed, 12, 13), "mlx-1.cpu.0.32.4/w=bf16,head=bf16,act=f32/kv=f16");
  EXPECT_EQ(ClassOfLayers(kMixed, 0, 31), "");
  EXPECT_EQ(ClassOfLayers(kCpu, 0, 31), kCpu);
  EXPECT_TRUE(IsMixed(kMixed));
  EXPECT_FALSE(IsMixed(kCpu));
}

TEST(NumericsClass, WhatIsNoListOfLayersIsANameForAll) {
  for (const char* name :
       {"a+b/w=f32", "a:0-3+b:5-6/w=f32", "a:1-3+b:4-6/w=f32", "a:0-x/w=f32", "a:3-0/w=f32",
        "a:0-99999999999999999999/w=f32", "a:/w=f32", "+/w=f32"}) {
    EXPECT_EQ(NumericsOfLayers(name, 2, 5),
              std::string(name).substr(0, std::string(name).find('/')));
    EXPECT_EQ(ClassOfLayers(name, 2, 5), name);
    EXPECT_FALSE(IsMixed(name)) << name;
  }
  EXPECT_EQ(NumericsOfLayers("", 0, 0), "");
}

TEST(NumericsClass, Int8ActivationsAreForKindsThatAllHaveThem) {
  EXPECT_TRUE(TakesInt8Activations("cpu-2"));
  EXPECT_TRUE(TakesInt8Activations("cpu-2:0-1+cpu-3:2-3/w=int8"));
  EXPECT_FALSE(TakesInt8Activations("mlx-1.cpu.0.32.4"));
  EXPECT_FALSE(TakesInt8Activations(kMixed));
}

TEST(NumericsClass, OnOtherNodesAClassHasTheActivationsThatTheyTake) {
  const std::string int8 = "cpu-2/w=int8,head=int8,act=int8/kv=f32";
  EXPECT_EQ(ClassAsIn(int8, "mlx-1"), "mlx-1/w=int8,head=int8,act=f32/kv=f32");
  EXPECT_EQ(ClassAsIn(int8, "cpu-3"), "cpu-3/w=int8,head=int8,act=int8/kv=f32");
  EXPECT_EQ(ClassAsIn(kMixed, "cpu-2"), kCpu);
}

}  // namespace
}  // namespace strata
