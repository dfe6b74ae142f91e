// Answers that a model gave lately, by tenant: later ones may go on as they did.
#ifndef STRATA_COORDINATOR_ENGINE_RECENT_ANSWERS_H_
#define STRATA_COORDINATOR_ENGINE_RECENT_ANSWERS_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <list>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "coordinator/engine/draft_context.h"
#include "coordinator/engine/drafter.h"

namespace strata {

// Blocks of tokens, each with an index of the places where three follow one another. What was used
// longest ago gives way, whoever's it is; nobody finds another tenant's. One thread.
class RecentAnswers {
 public:
  // Of a block; of the blocks of a tenant, each of which is looked into; and of an answer, of which
  // the last ones are kept.
  static constexpr uint32_t kBlockTokens = 4096;
  static constexpr size_t kMostBlocks = 16;
  static constexpr size_t kMostOfAnswer = 16'384;
  // What a block takes, about.
  static constexpr uint64_t kBlockBytes = 49 << 10;

  // `most_bytes`: of all blocks. Less than one takes: nothing is kept.
  explicit RecentAnswers(uint64_t most_bytes) : most_blocks_(most_bytes / kBlockBytes) {}

  bool keeps() const { return most_blocks_ > 0; }
  void Add(const std::string& tenant, std::span<const uint32_t> answer);

  // Behind a token of a block; 0: nowhere.
  struct Place {
    uint64_t block = 0;
    uint32_t end = 0;
  };
  // How an answer of the tenant's went on behind the tokens that `context` ends with: where the
  // most are alike, among equals at `place`, then where it is newest. Sets `place` to there.
  Draft Find(const std::string& tenant, const DraftContext& context, uint32_t most, Place* place);

  size_t blocks() const { return blocks_.size(); }

 private:
  struct Block {
    uint64_t number = 0;
    std::string tenant;
    std::vector<uint32_t> tokens;  // kNone behind each answer.
    // Places by a hash, the newest four of each; 0: none.
    std::vector<std::array<uint16_t, 4>> slots;
  };
  using Blocks = std::list<Block>;  // The one that was used last is the last.

  // The tenant's newest, if it has room for so many tokens; else a new one.
  Block& BlockFor(const std::string& tenant, size_t room);
  void Drop(Blocks::iterator block);
  static void Append(std::span<const uint32_t> tokens, Block* block);

  const uint64_t most_blocks_;
  Blocks blocks_;
  std::map<std::string, std::deque<Blocks::iterator>> by_tenant_;  // The newest last.
  uint64_t numbers_ = 0;
};

// Asks another drafter, and looks into the recent answers of the session's tenant for what more
// tokens speak for.
class RecentDrafter : public Drafter {
 public:
  // `recent` outlives it.
  RecentDrafter(std::unique_ptr<Drafter> own, RecentAnswers* recent, std::string tenant)
      : own_(std::move(own)), recent_(recent), tenant_(std::move(tenant)) {}

  Draft Next(std::span<const uint32_t> tokens, uint32_t most) override;
  Draft Behind(std::span<const uint32_t> tokens, std::span<const uint32_t> ahead,
               uint32_t most) override;

 private:
  Draft Better(Draft own, const DraftContext& context, uint32_t most);

  const std::unique_ptr<Drafter> own_;
  RecentAnswers* const recent_;
  const std::string tenant_;
  RecentAnswers::Place place_;  // Of its newest draft,
  uint32_t size_ = 0;           // and behind how many tokens it was.
};

}  // namespace strata

#endif  // STRATA_COORDINATOR_ENGINE_RECENT_ANSWERS_H_
