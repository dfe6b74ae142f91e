// Who was served how much, so that tenants share what there is too little of: whoever was served
// least of those that wait goes next. Virtual counters of tokens: who begins to wait is level with
// the least served of those that wait already, or with everybody if nobody does, so that nothing
// is saved up by being away.
#ifndef STRATA_COORDINATOR_ENGINE_FAIR_SHARES_H_
#define STRATA_COORDINATOR_ENGINE_FAIR_SHARES_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace strata {

// One thread.
class FairShares {
 public:
  // A session of `tenant` came: the tenant's index until as many have left.
  uint32_t Enter(const std::string& tenant);
  void Leave(uint32_t index);

  // These wait now, in any order, some of them more than once; the others do not.
  void SetWaiting(const std::vector<uint32_t>& tenants);
  void Serve(uint32_t index, uint64_t tokens);

  // By index, to compare those that wait.
  const std::vector<uint64_t>& served() const { return served_; }
  // Tenants that have sessions.
  size_t present() const { return present_; }

 private:
  struct Account {
    std::string tenant;
    uint64_t sessions = 0;
    bool used = false;
    bool waits = false;
  };
  void Forget(uint32_t index);
  void ForgetAbsent();

  std::vector<Account> accounts_;
  std::vector<uint64_t> served_;
  // Those without sessions too, as long as they would come back worse off for what they had.
  std::map<std::string, uint32_t> by_tenant_;
  size_t present_ = 0;
  bool anybody_waits_ = false;
  uint64_t most_ = 0;  // That anybody was ever served.
};

}  // namespace strata

#endif  // STRATA_COORDINATOR_ENGINE_FAIR_SHARES_H_
