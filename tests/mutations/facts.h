// A model's spec as numbers under names, to be compared one by one.
#ifndef STRATA_TESTS_MUTATIONS_FACTS_H_
#define STRATA_TESTS_MUTATIONS_FACTS_H_

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <string_view>

#include "common/model/model_spec.h"

namespace strata::testing {

// "context", "layers.2.rope.theta", ...: all that a backend computes by. Of how weights are stored,
// what the shapes of their tensors do not say.
using Facts = std::map<std::string, double>;
Facts FactsOf(const ModelSpec& spec);

std::string FactOfLayer(uint64_t layer, std::string_view name);

// What a spec must be.
struct Wanted {
  Facts facts;
  // Names, without the layer, that a family's default decides: any value will do.
  std::set<std::string> open;

  uint64_t layers() const { return static_cast<uint64_t>(facts.at("layers")); }
  void SetInLayers(std::string_view name, double value);
};

// Where they disagree, for a message; "" where they do not. Numbers of float32 are compared as
// such.
std::string Disagreement(const Facts& loaded, const Wanted& wanted);

// Whether they differ in something that changes the logits of LogitsOfModel.
bool DifferVisibly(const Facts& a, const Facts& b);

}  // namespace strata::testing

#endif  // STRATA_TESTS_MUTATIONS_FACTS_H_
