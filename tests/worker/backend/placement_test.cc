// Threads on cores of machines that nobody here has.
#include "worker/backend/cpu/threads/placement.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

#include "common/status.h"
#include "worker/backend/cpu/threads/thread_pool.h"

namespace strata::cpu {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

// `nodes` nodes of `physical` cores, hyperthread by hyperthread: the second of core c has the
// number c + nodes * physical.
Topology Machine(uint32_t nodes, uint32_t physical, uint32_t hyperthreads) {
  Topology machine;
  machine.online = nodes * physical * hyperthreads;
  for (uint32_t n = 0; n < machine.online; ++n) {
    const uint32_t core = n % (nodes * physical);
    machine.cores.push_back({.number = n, .physical = core, .node = core / physical});
  }
  return machine;
}

Topology Only(Topology machine, const std::vector<uint32_t>& numbers) {
  std::vector<Core> cores;
  for (const uint32_t number : numbers) {
    cores.push_back(machine.cores.at(number));
  }
  machine.cores = cores;
  return machine;
}

Placement Place(std::string_view pin, uint32_t threads, uint32_t quota, const Topology& machine) {
  const auto placement = PlaceThreads(pin, threads, quota, machine);
  EXPECT_TRUE(placement.ok()) << placement.status();
  return placement.ok() ? *placement : Placement();
}

TEST(PlacementTest, PhysicalCoresComeBeforeTheirHyperthreads) {
  const Topology machine = Machine(1, 4, 2);
  EXPECT_THAT(Place("on", 3, 8, machine).cores(), ElementsAre(0, 1, 2));
  EXPECT_THAT(Place("on", 6, 8, machine).cores(), ElementsAre(0, 1, 2, 3, 4, 5));
  // Where hyperthreads are numbered next to each other, too.
  Topology paired;
  paired.online = 8;
  for (uint32_t n = 0; n < 8; ++n) {
    paired.cores.push_back({.number = n, .physical = n / 2 * 2, .node = 0});
  }
  EXPECT_THAT(Place("on", 3, 8, paired).cores(), ElementsAre(0, 2, 4));
  EXPECT_THAT(Place("on", 5, 8, paired).cores(), ElementsAre(0, 2, 4, 6, 1));
}

TEST(PlacementTest, OneMemoryNodeIsFilledBeforeTheNext) {
  const Topology machine = Machine(2, 4, 2);
  EXPECT_THAT(Place("on", 4, 16, machine).nodes(), ElementsAre(0, 0, 0, 0));
  EXPECT_THAT(Place("on", 6, 16, machine).cores(), ElementsAre(0, 1, 2, 3, 4, 5));
  EXPECT_THAT(Place("on", 6, 16, machine).nodes(), ElementsAre(0, 0, 0, 0, 1, 1));
}

TEST(PlacementTest, ThreadsOfANodeFollowEachOther) {
  const Placement all = Place("on", 16, 16, Machine(2, 4, 2));
  EXPECT_THAT(all.nodes(), ElementsAre(0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 1, 1));
  EXPECT_THAT(all.cores(), ElementsAre(0, 1, 2, 3, 8, 9, 10, 11, 4, 5, 6, 7, 12, 13, 14, 15));
}

TEST(PlacementTest, OnlyCoresOfTheAffinityMaskAreUsed) {
  // Of the first core only the second hyperthread: it counts as a physical core of its own.
  const Topology some = Only(Machine(2, 4, 2), {2, 3, 6, 8, 10});
  EXPECT_THAT(Place("on", 4, 5, some).cores(), ElementsAre(2, 3, 8, 6));
  EXPECT_THAT(Place("on", 5, 5, some).cores(), ElementsAre(2, 3, 8, 10, 6));
}

TEST(PlacementTest, AutoPinsOnCoresThatAreTheProcesssOwn) {
  const Topology some = Only(Machine(1, 8, 1), {2, 3, 4});
  const Placement placement = Place("auto", 3, 3, some);
  EXPECT_THAT(placement.cores(), ElementsAre(2, 3, 4));
  EXPECT_EQ(placement.Text(), "pinned to cores 3-4 beside the caller's 2, 1 memory node");
}

TEST(PlacementTest, AutoPinsWhereMemoryIsOnSeveralNodes) {
  const Placement placement = Place("auto", 8, 8, Machine(2, 4, 1));
  EXPECT_THAT(placement.cores(), ElementsAre(0, 1, 2, 3, 4, 5, 6, 7));
  EXPECT_EQ(placement.Text(), "pinned to cores 1-7 beside the caller's 0, 2 memory nodes");
}

TEST(PlacementTest, AutoLeavesCoresThatOthersMayBeOnToTheScheduler) {
  // Two workers that share a machine by --threads alone.
  Placement placement = Place("auto", 4, 8, Machine(2, 4, 1));
  EXPECT_THAT(placement.cores(), IsEmpty());
  EXPECT_EQ(placement.Text(), "not pinned: 4 threads for 8 cores");
  placement = Place("auto", 16, 8, Machine(2, 4, 1));
  EXPECT_EQ(placement.Text(), "not pinned: 16 threads for 8 cores");
  // By quotas.
  placement = Place("auto", 8, 4, Machine(2, 4, 1));
  EXPECT_EQ(placement.Text(), "not pinned: a quota of 4 of 8 cores");
  // By nothing at all.
  placement = Place("auto", 8, 8, Machine(1, 8, 1));
  EXPECT_EQ(placement.Text(), "not pinned: no cores of its own, and one memory node");
}

TEST(PlacementTest, OnPinsWithinAQuotaTooAndOffNever) {
  EXPECT_THAT(Place("on", 2, 2, Machine(1, 8, 1)).cores(), ElementsAre(0, 1));
  const Placement off = Place("off", 3, 3, Only(Machine(1, 8, 1), {2, 3, 4}));
  EXPECT_THAT(off.cores(), IsEmpty());
  EXPECT_EQ(off.Text(), "not pinned: --pin off");
}

TEST(PlacementTest, AThreadAloneIsNotPinned) {
  EXPECT_EQ(Place("on", 1, 8, Machine(2, 4, 1)).Text(),
            "not pinned: the one thread is whoever calls");
  EXPECT_THAT(Place("auto", 1, 1, Only(Machine(2, 4, 1), {5})).cores(), IsEmpty());
}

TEST(PlacementTest, WhatCannotBePinnedIsRefused) {
  const absl::Status few = PlaceThreads("on", 9, 9, Machine(1, 8, 1)).status();
  EXPECT_TRUE(absl::IsInvalidArgument(few)) << few;
  EXPECT_THAT(Describe(few), ::testing::HasSubstr("--threads"));
  EXPECT_TRUE(absl::IsInvalidArgument(PlaceThreads("on", 2, 2, Topology()).status()));
  EXPECT_TRUE(absl::IsInvalidArgument(PlaceThreads("maybe", 2, 2, Topology()).status()));
}

TEST(PlacementTest, AutoPinsNothingWhereCoresAreNotKnown) {
  EXPECT_EQ(Place("auto", 2, 2, Topology()).Text(),
            "not pinned: this system does not say where its cores are");
}

// The node of every panel of matrices that are split as one row, as placed.
std::vector<std::vector<int>> PlacedNodes(const std::vector<uint32_t>& nodes,
                                          const std::vector<size_t>& matrices) {
  constexpr size_t kPanelBytes = 64;
  size_t all = 0;
  for (const size_t panels : matrices) {
    all += panels;
  }
  std::vector<std::vector<int>> placed;
  size_t before = 0;
  for (const size_t panels : matrices) {
    std::vector<uint8_t> memory(panels * kPanelBytes);
    std::vector<int> node_of(panels, -1);
    const WeightPlacer placer(nodes, [&](uint8_t* data, size_t bytes, uint32_t node) {
      const size_t offset = static_cast<size_t>(data - memory.data());
      EXPECT_EQ(offset % kPanelBytes, 0u);
      EXPECT_EQ(bytes % kPanelBytes, 0u);
      for (size_t p = offset / kPanelBytes; p < (offset + bytes) / kPanelBytes; ++p) {
        EXPECT_EQ(node_of.at(p), -1) << "placed twice";
        node_of.at(p) = static_cast<int>(node);
      }
    });
    placer.Place(memory, kPanelBytes, before, all);
    placed.push_back(node_of);
    before += panels;
  }
  return placed;
}

TEST(WeightPlacerTest, EveryPanelIsOnTheNodeOfTheThreadThatReadsIt) {
  const std::vector<uint32_t> nodes = {0, 0, 0, 2, 2};
  ThreadPool pool(static_cast<uint32_t>(nodes.size()), 0);
  for (const std::vector<size_t>& matrices :
       std::vector<std::vector<size_t>>{{100}, {3}, {64, 16, 16}, {5, 1, 1}, {2, 200, 7}}) {
    std::vector<int> reader;  // Its node, of every panel of all.
    for (const size_t panels : matrices) {
      reader.resize(reader.size() + panels, -1);
    }
    pool.Run([&](uint32_t thread) {
      for (size_t p = ThreadPool::PartBegin(reader.size(), thread, nodes.size());
           p < ThreadPool::PartBegin(reader.size(), thread + 1, nodes.size()); ++p) {
        reader[p] = static_cast<int>(nodes[thread]);
      }
    });
    std::vector<int> placed;
    for (const std::vector<int>& matrix : PlacedNodes(nodes, matrices)) {
      placed.insert(placed.end(), matrix.begin(), matrix.end());
    }
    EXPECT_EQ(placed, reader);
  }
}

TEST(WeightPlacerTest, APlaceIsAskedForOnceANode) {
  std::vector<uint8_t> memory(64 * 100);
  int calls = 0;
  const WeightPlacer placer({0, 0, 1, 1}, [&](uint8_t*, size_t, uint32_t) { ++calls; });
  placer.Place(memory, 64, 0, 100);
  EXPECT_EQ(calls, 2);
}

TEST(WeightPlacerTest, OnOneNodeNothingIsPlaced) {
  std::vector<uint8_t> memory(64 * 100);
  for (const std::vector<uint32_t>& nodes : std::vector<std::vector<uint32_t>>{{}, {1}, {1, 1}}) {
    const WeightPlacer placer(nodes, [](uint8_t*, size_t, uint32_t) { ADD_FAILURE(); });
    placer.Place(memory, 64, 0, 100);
  }
}

}  // namespace
}  // namespace strata::cpu
