#include "worker/ranks/rank_follower.h"

#include <algorithm>
#include <array>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/check.h"
#include "common/status.h"
#include "worker/collective/channel_collective.h"
#include "worker/ranks/page_parts.h"
#include "worker/ranks/rank_answer.h"

namespace strata {
namespace {

uint64_t LargestPage(const RankShard& shard, const StageSpec& spec) {
  uint64_t bytes = 0;
  for (uint32_t group = 0; group < spec.model.kv_groups.size(); ++group) {
    bytes = std::max(bytes, shard.PageBytes(group));
  }
  return bytes;
}

absl::Status OutOfOrder(const std::string& what) {
  return Error(absl::StatusCode::kDataLoss, kRankFrame, what);
}

}  // namespace

RankFollower::RankFollower(RankShard* shard, const StageSpec& spec, uint32_t rank, RankTimes times)
    : shard_(*shard),
      rank_(rank),
      vocab_(spec.model.vocab),
      limits_(LimitsOf(spec, LargestPage(*shard, spec))),
      times_(waits_.Noting(std::move(times))),
      ranks_(static_cast<uint32_t>(times_.names.size())) {
  STRATA_CHECK(rank > 0 && rank < ranks_);
}

void RankFollower::Stop(const absl::Status& why) {
  MutexLock lock(&mutex_);
  if (stopped_.ok()) {
    stopped_ = why;
  }
  if (connected_) {
    shard_.Abort(why);
  }
}

absl::Status RankFollower::Follow(RankChannels channels) {
  STRATA_CHECK(channels.gathers.size() == ranks_ && channels.calls.size() == 1);
  {
    MutexLock lock(&mutex_);
    RETURN_IF_ERROR(stopped_);
    shard_.Connect(MakeChannelCollective(rank_, std::move(channels.gathers),
                                         {.timeout = times_.timeout,
                                          .clock = times_.clock,
                                          .pause = times_.pause,
                                          .names = times_.names}),
                   channels.epoch);
    connected_ = true;
  }
  number_ = 0;
  begun_ = false;
  absl::Status status;
  while (status.ok()) {
    status = Take(channels.calls[0].get(), channels.epoch);
    if (status.ok() && held_.call().kind == RankCallKind::kEnd) {
      return status;
    }
    if (status.ok()) {
      at_hand_ = number_;
      status = Make(held_.call());
      at_hand_ = 0;
    }
  }
  shard_.Abort(status);
  const absl::Status stopped = Stopped();
  return stopped.ok() ? status : stopped;
}

absl::Status RankFollower::Take(RankChannel* leader, uint64_t epoch) {
  std::array<uint8_t, kRankCallHeadBytes> bytes;
  RETURN_IF_ERROR(Fill(leader, bytes));
  ASSIGN_OR_RETURN(const RankCallHead head, DecodeRankCallHead(bytes, limits_));
  if (head.epoch != epoch || head.number != number_ + 1) {
    return OutOfOrder(absl::StrCat("call ", head.number, " of epoch ", head.epoch,
                                   " came in place of call ", number_ + 1, " of epoch ", epoch));
  }
  ++number_;
  bytes_.resize(head.bytes);
  RETURN_IF_ERROR(Fill(leader, bytes_));
  return held_.Decode(head, bytes_, limits_);
}

absl::Status RankFollower::Fill(RankChannel* leader, std::span<uint8_t> out) {
  const TimePoint deadline = times_.clock->Now() + times_.silence;
  uint64_t idle = 0;
  while (!out.empty()) {
    RETURN_IF_ERROR(Stopped());
    const absl::StatusOr<size_t> filled = leader->Receive(out);
    if (!filled.ok()) {
      return Error(
          absl::StatusCode::kUnavailable, kRanksBroken,
          absl::StrCat("rank 0 (", times_.names[0], ") is gone: ", filled.status().message()));
    }
    out = out.subspan(*filled);
    idle = *filled > 0 ? 0 : idle + 1;
    if (idle > 0 && times_.clock->Now() >= deadline) {
      const auto ms = times_.silence / milliseconds(1);
      return Error(absl::StatusCode::kDeadlineExceeded, kCollectiveTimeout,
                   absl::StrCat("rank 0 (", times_.names[0], ") was silent for ", ms, " ms"))
          .Limit(absl::StrCat("silence_ms=", ms));
    }
    if (idle > 0 && times_.pause) {
      times_.pause(idle);
    }
  }
  return absl::OkStatus();
}

absl::Status RankFollower::Make(const RankCall& call) {
  switch (call.kind) {
    case RankCallKind::kBegin:
      head_rows_ = 0;
      RETURN_IF_ERROR(shard_.Begin(call.batch));
      begun_ = true;
      return absl::OkStatus();
    case RankCallKind::kCopyPage:
      return shard_.CopyPage(call.group, call.page, call.to);
    case RankCallKind::kResizeKv:
      head_rows_ = 0;
      return Answer(shard_.ResizeKv(call.kv_pages));
    case RankCallKind::kReadPage:
      return ReadPage(call);
    case RankCallKind::kWritePage:
      return Answer(call.page_bytes.empty()
                        ? absl::OkStatus()
                        : shard_.WritePage(call.group, call.page, call.page_bytes));
    case RankCallKind::kAlive:
    case RankCallKind::kEnd:
      return absl::OkStatus();
    default:
      return begun_ ? MakeOfBatch(call) : OutOfOrder("a leader's call of a batch that never began");
  }
}

absl::Status RankFollower::MakeOfBatch(const RankCall& call) {
  switch (call.kind) {
    case RankCallKind::kShareResidual:
      return shard_.ShareResidual();
    case RankCallKind::kAttention:
      return shard_.Attention(call.layer);
    case RankCallKind::kAttentionOfSome:
      return shard_.AttentionOfSome(call.layer, call.rows);
    case RankCallKind::kMlp:
      return shard_.Mlp(call.layer);
    case RankCallKind::kHead:
      RETURN_IF_ERROR(shard_.Head(call.rows));
      head_rows_ = static_cast<uint32_t>(call.rows.size());
      return absl::OkStatus();
    default:
      return ReadLogits();
  }
}

absl::Status RankFollower::ReadLogits() {
  logits_.resize(head_rows_ * vocab_);
  RETURN_IF_ERROR(shard_.ReadLogits(logits_));
  return shard_.GatherLogits(logits_);
}

absl::Status RankFollower::Answer(const absl::Status& own) {
  return GatherAnswers(&shard_, rank_, ranks_, own).status();
}

absl::Status RankFollower::ReadPage(const RankCall& call) {
  const PageParts parts(shard_, call.group, ranks_);
  const ByteColumns& own = parts.columns[rank_];
  parts_.resize(parts.columns.back().end);
  ASSIGN_OR_RETURN(const std::vector<absl::Status> answers,
                   GatherAnswers(&shard_, rank_, ranks_,
                                 own.size() == 0 ? absl::OkStatus()
                                                 : shard_.ReadPage(call.group, call.page,
                                                                   std::span(parts_).subspan(
                                                                       own.begin, own.size()))));
  const bool all = std::all_of(answers.begin(), answers.end(),
                               [](const absl::Status& answer) { return answer.ok(); });
  return all ? shard_.GatherBytes(parts_.data(), parts.columns) : absl::OkStatus();
}

}  // namespace strata
