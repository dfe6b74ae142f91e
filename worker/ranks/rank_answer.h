// What each rank answers to a call that may fail on one of them alone.
#ifndef STRATA_WORKER_RANKS_RANK_ANSWER_H_
#define STRATA_WORKER_RANKS_RANK_ANSWER_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "worker/backend/rank_shard.h"

namespace strata {

inline constexpr size_t kAnswerBytes = 1024;

// A status with its detail; of one that is too long the message is cut.
void EncodeAnswer(const absl::Status& answer, std::span<uint8_t, kAnswerBytes> out);
// `answer` := what was answered. DATA_LOSS (kRankFrame): it is no answer.
absl::Status DecodeAnswer(std::span<const uint8_t, kAnswerBytes> bytes, absl::Status* answer);

// By rank, on all ranks alike. An error: the collective's, or DecodeAnswer's.
absl::StatusOr<std::vector<absl::Status>> GatherAnswers(RankShard* shard, uint32_t rank,
                                                        uint32_t ranks, const absl::Status& own);

}  // namespace strata

#endif  // STRATA_WORKER_RANKS_RANK_ANSWER_H_
