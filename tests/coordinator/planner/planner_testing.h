// Made-up clusters and models, checks that hold for every plan, and a planner that tries all.
#ifndef STRATA_TESTS_COORDINATOR_PLANNER_PLANNER_TESTING_H_
#define STRATA_TESTS_COORDINATOR_PLANNER_PLANNER_TESTING_H_

#include <cstdint>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "coordinator/planner/planner.h"

namespace strata::testing {

inline constexpr uint64_t kMiB = uint64_t{1} << 20;
inline constexpr uint64_t kGiB = uint64_t{1} << 30;

// A Llama-like model of `layers` equal layers in two bytes a weight, which ranks divide as their
// shares are.
PlannerModel MakeModel(uint32_t layers, uint32_t hidden, uint32_t ffn, uint32_t heads,
                       uint32_t kv_heads, uint32_t vocab);
// That can compute a stage together with others.
PlannerNode MakeNode(std::string name, uint64_t free_bytes, double gigabytes_per_s,
                     double gigaflops_per_s);
// Links that are all alike, without latency between a node and itself.
PlannerCluster MakeCluster(std::vector<PlannerNode> nodes, PlannerLink link);
// With one node a stage.
PlannerRequest MakeRequest(v1::PlanGoal goal, uint64_t kv_tokens, uint32_t sessions = 1);

// Fails the test unless the plan holds every layer once and in order, no node twice, the class of
// its nodes, no more than each node's memory, and the KV target on every stage.
void ExpectValid(const PlannerCluster& cluster, const PlannerModel& model,
                 const PlannerRequest& request, const v1::Plan& plan);

// The goal's measure of a plan: ms of a token, ms of the slowest stage or transfer, or KV pages.
double MeasureOf(const PlannerCluster& cluster, const PlannerModel& model,
                 const PlannerRequest& request, const v1::Plan& plan);

// The best measure over every order of every set of nodes and every split of the layers; nothing
// if no placement fits.
std::optional<double> BruteForce(const PlannerCluster& cluster, const PlannerModel& model,
                                 const PlannerRequest& request);

struct RandomCase {
  PlannerCluster cluster;
  PlannerModel model;
  PlannerRequest request;
};
// Random speeds, memories and links; with `equal_layers` false each layer has its own costs.
RandomCase MakeRandomCase(std::mt19937_64* random, uint32_t nodes, uint32_t layers,
                          bool equal_layers, v1::PlanGoal goal);

}  // namespace strata::testing

#endif  // STRATA_TESTS_COORDINATOR_PLANNER_PLANNER_TESTING_H_
