// The workers of a cluster, as its coordinator lists them.
#ifndef STRATA_CLI_DEPLOY_NODE_LIST_H_
#define STRATA_CLI_DEPLOY_NODE_LIST_H_

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace strata::deploy {

// A worker as the coordinator lists it.
struct ListedNode {
  std::string state;
  uint64_t incarnation = 0;
  std::vector<std::string> models;  // With layers there.
};

// Whether the coordinator hears it.
bool IsThere(const ListedNode& node);

// What `strata node list --json` wrote. INTERNAL (BAD_FACTS) where that is none.
absl::StatusOr<std::map<std::string, ListedNode>> ParseNodeList(const std::string& text);

}  // namespace strata::deploy

#endif  // STRATA_CLI_DEPLOY_NODE_LIST_H_
