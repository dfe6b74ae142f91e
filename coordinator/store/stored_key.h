// An API key as the store keeps it.
#ifndef STRATA_COORDINATOR_STORE_STORED_KEY_H_
#define STRATA_COORDINATOR_STORE_STORED_KEY_H_

#include <cstdint>
#include <string>

namespace strata {

// What one key may do. 0: no limit.
struct KeyLimits {
  uint32_t requests_in_flight = 0;
  uint32_t requests_per_minute = 0;
  uint64_t tokens_per_minute = 0;  // Prompts' and generated ones.
  // What its requests may ask for at the cost of others': the highest priority (a limit as it
  // stands, 0 too), and never to be preempted. An admin key may ask for anything.
  int32_t max_priority = 0;
  bool guaranteed = false;
  bool operator==(const KeyLimits&) const = default;
};

struct StoredKey {
  std::string id;      // "key-" and hex digits. Unique, for ever.
  std::string name;    // For people; several may share one.
  std::string hash;    // SHA-256 of the secret, hex. The secret itself is nowhere.
  bool admin = false;  // May administrate.
  // Unix seconds; 0: never.
  uint64_t created = 0;
  uint64_t last_used = 0;
  uint64_t revoked = 0;
  KeyLimits limits;
};

}  // namespace strata

#endif  // STRATA_COORDINATOR_STORE_STORED_KEY_H_
