// Follows an answer that copies a text and changes some of it: where the copy goes on behind a
// change, and what its changes were.
#ifndef STRATA_COORDINATOR_ENGINE_COPY_FOLLOWER_H_
#define STRATA_COORDINATOR_ENGINE_COPY_FOLLOWER_H_

#include <cstdint>
#include <span>
#include <utility>
#include <vector>

namespace strata {

// Tokens are taken to be copies of those that stand a fixed distance before them. Behind a change
// the copy may go on as if as many tokens had been replaced. Where it does, each of the new ones is
// taken to be what the old one in its place became, and to be that again, until an old one is
// copied as it is: an edit changes a name everywhere. What was inserted or left out changes the
// distance, and is for others to find. One thread.
class CopyFollower {
 public:
  // Changed tokens in a row behind which a copy may still go on, and tokens before them that were
  // copied at least.
  static constexpr uint32_t kMostChanged = 8;
  static constexpr uint32_t kLeastBefore = 4;
  // Copied tokens behind a change that show that the copy goes on.
  static constexpr uint32_t kLeastBehind = 3;
  // Changes that are remembered: the newest.
  static constexpr uint32_t kMostChanges = 64;

  // Of `size` tokens the newest `matched` > 0 are copies of those `distance` > 0 before them.
  void Begin(uint32_t distance, uint32_t size, uint32_t matched);
  // Of `tokens` those before the newest call of Follow or Begin are as they were then.
  void Follow(std::span<const uint32_t> tokens);

  // 0: nothing is followed.
  uint32_t distance() const { return distance_; }
  // The newest tokens that are copied, as they are or as others were before.
  uint32_t matched() const { return matched_; }
  // There are changed tokens before them, behind which it is not known whether the copy goes on.
  bool changed() const { return changed_ > 0; }
  // It may.
  bool may_go_on() const { return changed_ <= kMostChanged && before_ >= kLeastBefore; }
  // Tokens that were copied before those changed ones.
  uint32_t before() const { return before_; }
  // What the token became in copies, else itself.
  uint32_t Became(uint32_t token) const;

 private:
  void Remember(uint32_t old_token, uint32_t new_token);
  void Forget(uint32_t old_token);

  uint32_t distance_ = 0;
  uint32_t followed_ = 0;  // Tokens so far.
  uint32_t before_ = 0;
  uint32_t changed_ = 0;
  uint32_t matched_ = 0;
  std::vector<std::pair<uint32_t, uint32_t>> changes_;  // The newest last.
};

}  // namespace strata

#endif  // STRATA_COORDINATOR_ENGINE_COPY_FOLLOWER_H_
