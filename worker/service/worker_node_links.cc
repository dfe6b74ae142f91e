// What reaches a worker's stages: fences, links, and others that take over their KV.
#include <utility>

#include "common/app/log.h"
#include "common/status.h"
#include "worker/service/shard_host.h"
#include "worker/service/stage_task.h"
#include "worker/service/worker_node.h"

namespace strata {

void WorkerNode::Fence(StageId stage, const v1::Fence& fence) {
  const std::shared_ptr<ShardHost> host = tasks_.at(stage)->Host();
  if (host == nullptr) {
    LogWarn({{"deployment", fence.deployment()}, {"epoch", fence.epoch()}},
            "a fence came for a rank that follows another worker");
    return;
  }
  v1::NextHop next = fence.next();
  if (next.node().empty()) {
    next.set_address(options_.coordinator);
  }
  const v1::NextHop* const other = fence.has_next() ? &next : nullptr;
  if (fence.ahead()) {
    host->OpenAhead(fence.epoch(), other, fence.has_kv_from() ? &fence.kv_from() : nullptr);
  } else {
    host->Fence(fence.epoch(), other);
  }
}

std::shared_ptr<ShardHost> WorkerNode::GivesKv(uint64_t deployment, uint64_t loaded_epoch) {
  MutexLock lock(&mutex_);
  const StageId stage = stages_.GivesKv(deployment, loaded_epoch);
  return stage == 0 ? nullptr : tasks_.at(stage)->Host();
}

std::shared_ptr<RankSeat> WorkerNode::SeatOf(uint64_t deployment, uint64_t loaded_epoch) {
  MutexLock lock(&mutex_);
  const StageId stage = stages_.LoadedBy(deployment, loaded_epoch);
  return stage == 0 ? nullptr : tasks_.at(stage)->Seat();
}

LinkHandler::Identity WorkerNode::identity() const {
  MutexLock lock(&mutex_);
  return {options_.name, stages_.incarnation()};
}

absl::StatusOr<std::shared_ptr<LinkSink>> WorkerNode::OnOpen(const v1::LinkOpen& open,
                                                             const std::string& peer,
                                                             std::shared_ptr<InboundLink> link) {
  std::shared_ptr<ShardHost> host;
  {
    MutexLock lock(&mutex_);
    ASSIGN_OR_RETURN(const StageId stage, stages_.Reaches(open));
    host = tasks_.at(stage)->Host();
  }
  if (host == nullptr) {
    return Error(absl::StatusCode::kFailedPrecondition, "RANK_FOLLOWS",
                 "the stage's first rank is on another worker")
        .Node(options_.name);
  }
  LogDebug({{"from", open.from_node()},
            {"address", peer},
            {"deployment", open.deployment()},
            {"epoch", open.epoch()},
            {"stage", open.to_stage()}},
           "a link came in");
  return host->AcceptLink(open, std::move(link));
}

}  // namespace strata
