#include "coordinator/planner/machines.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <string>

#include "common/status.h"

namespace strata {
namespace {

using ::testing::HasSubstr;

// "slow" on its own network, "fast" on that of the request.
v1::PlanMachinesRequest TwoMachines() {
  v1::PlanMachinesRequest request;
  request.mutable_network()->set_latency_ms(0.2);
  request.mutable_network()->set_bytes_per_s(1e9);
  for (const char* name : {"slow", "fast"}) {
    v1::PlannedMachine* machine = request.add_machines();
    machine->set_name(name);
    machine->set_memory_bytes(1 << 30);
    machine->set_read_bytes_per_s(1e11);
    machine->set_flops_per_s(1e12);
  }
  request.mutable_machines(0)->mutable_network()->set_latency_ms(2);
  request.mutable_machines(0)->mutable_network()->set_bytes_per_s(1e8);
  return request;
}

TEST(MachinesTest, TwoMachinesHaveTheWorseOfTheirNetworks) {
  v1::PlanMachinesRequest request = TwoMachines();
  request.add_machines()->CopyFrom(request.machines(1));
  request.mutable_machines(2)->set_name("other");
  const auto cluster = ClusterOfMachines(request);
  ASSERT_TRUE(cluster.ok()) << cluster.status();
  ASSERT_EQ(cluster->links.size(), 4u);
  EXPECT_EQ(cluster->links[0][1].latency_ms, 2);
  EXPECT_EQ(cluster->links[1][0].bytes_per_s, 1e8);
  EXPECT_EQ(cluster->links[1][2].latency_ms, 0.2);
  EXPECT_EQ(cluster->links[3][1].bytes_per_s, 1e9);  // Of the coordinator.
  EXPECT_EQ(cluster->links[0][0].latency_ms, 0);
}

TEST(MachinesTest, ProcessorsAndCudaAreOfOneNumericsAndMlxOfAnother) {
  v1::PlanMachinesRequest request = TwoMachines();
  request.mutable_machines(1)->set_device("cuda");
  request.add_machines()->CopyFrom(request.machines(1));
  request.mutable_machines(2)->set_name("mac");
  request.mutable_machines(2)->set_device("mlx");
  const auto cluster = ClusterOfMachines(request);
  ASSERT_TRUE(cluster.ok()) << cluster.status();
  EXPECT_EQ(cluster->nodes[0].numerics, cluster->nodes[1].numerics);
  EXPECT_NE(cluster->nodes[0].numerics, cluster->nodes[2].numerics);
  EXPECT_EQ(cluster->nodes[0].device, "cpu");
}

TEST(MachinesTest, WhatMakesNoSenseIsNamed) {
  const struct {
    std::function<void(v1::PlanMachinesRequest*)> change;
    const char* said;
  } kCases[] = {
      {[](auto* r) { r->clear_machines(); }, "there are no machines"},
      {[](auto* r) { r->mutable_machines(1)->set_name("slow"); }, "two machines are called 'slow'"},
      {[](auto* r) { r->mutable_machines(1)->set_name("-x"); }, "-x"},
      {[](auto* r) { r->mutable_machines(1)->set_device("tpu"); }, "the device of machine 'fast'"},
      {[](auto* r) { r->mutable_machines(1)->set_memory_bytes(0); },
       "machine 'fast' has no memory"},
      {[](auto* r) { r->mutable_machines(1)->set_flops_per_s(-1); }, "machine 'fast' lacks"},
      {[](auto* r) { r->mutable_machines(1)->set_read_bytes_per_s(1.0 / 0.0); }, "'fast' lacks"},
      {[](auto* r) { r->mutable_network()->set_bytes_per_s(0); }, "network of the coordinator"},
      {[](auto* r) { r->mutable_machines(0)->mutable_network()->set_latency_ms(-1); },
       "below 0 ms"},
      {[](auto* r) {
         for (int i = 0; i < kMaxPlannedMachines; ++i) r->add_machines();
       },
       "1026 machines"},
  };
  for (const auto& c : kCases) {
    v1::PlanMachinesRequest request = TwoMachines();
    c.change(&request);
    const auto cluster = ClusterOfMachines(request);
    EXPECT_EQ(ReasonOf(cluster.status()), "BAD_MACHINES") << c.said;
    EXPECT_THAT(std::string(cluster.status().message()), HasSubstr(c.said));
  }
}

}  // namespace
}  // namespace strata
