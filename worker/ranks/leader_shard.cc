#include "worker/ranks/leader_shard.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/check.h"
#include "common/status.h"
#include "worker/collective/channel_collective.h"
#include "worker/ranks/rank_answer.h"

namespace strata {
namespace {

// The leader's rank.
constexpr uint32_t kOwn = 0;

absl::Status NotJoined() {
  return Error(absl::StatusCode::kUnavailable, kRanksBroken, "the stage's ranks are not joined");
}

}  // namespace

LeaderShard::LeaderShard(std::unique_ptr<RankShard> own, RankTimes times, JoinFn join)
    : own_(std::move(own)),
      times_(waits_.Noting(std::move(times))),
      join_(std::move(join)),
      ranks_(static_cast<uint32_t>(times_.names.size())),
      frames_(ranks_),
      broken_(NotJoined()) {
  STRATA_CHECK(ranks_ >= 2);
}

LeaderShard::~LeaderShard() { End("the stage is unloaded"); }

void LeaderShard::Join(RankChannels channels) {
  STRATA_CHECK(channels.gathers.size() == ranks_ && channels.calls.size() == ranks_);
  End("the ranks are joined anew");
  own_->Connect(MakeChannelCollective(kOwn, std::move(channels.gathers),
                                      {.timeout = times_.timeout,
                                       .clock = times_.clock,
                                       .pause = times_.pause,
                                       .names = times_.names}),
                channels.epoch);
  shared_ = true;
  kv_lost_ = true;
  head_rows_ = 0;
  MutexLock lock(&mutex_);
  calls_ = std::move(channels.calls);
  epoch_ = channels.epoch;
  number_ = 0;
  broken_ = absl::OkStatus();
}

absl::Status LeaderShard::BeginEpoch(uint64_t epoch) {
  const absl::Status broken = Broken();
  if (broken.ok() || join_ == nullptr) {
    return broken;
  }
  absl::StatusOr<RankChannels> channels = join_(epoch);
  if (!channels.ok()) {
    return Error(absl::StatusCode::kUnavailable, kRanksBroken,
                 absl::StrCat("a rank of the stage does not join: ", channels.status().message()))
        .Node(DetailOf(channels.status()).node())
        .Fact("cause", ReasonOf(channels.status()));
  }
  Join(*std::move(channels));
  return absl::OkStatus();
}

void LeaderShard::End(const std::string& why) {
  MutexLock lock(&mutex_);
  if (broken_.ok()) {
    (void)SendFrame([&](uint32_t) { return RankCall{.kind = RankCallKind::kEnd, .why = why}; });
  }
  broken_ = NotJoined();
  calls_.clear();
}

void LeaderShard::Beat() {
  MutexLock lock(&mutex_);
  if (!broken_.ok()) {
    return;
  }
  const absl::Status status =
      SendFrame([](uint32_t) { return RankCall{.kind = RankCallKind::kAlive}; });
  if (!status.ok()) {
    SetBroken(status);
  }
}

absl::Status LeaderShard::Broken() {
  MutexLock lock(&mutex_);
  return broken_;
}

absl::Status LeaderShard::Break(const absl::Status& why) {
  MutexLock lock(&mutex_);
  if (broken_.ok()) {
    SetBroken(why);
  }
  return broken_;
}

void LeaderShard::SetBroken(const absl::Status& why) {
  own_->Abort(why);  // Not while Join connects: there is no epoch then.
  broken_ = Error(absl::StatusCode::kUnavailable, kRanksBroken,
                  absl::StrCat("the stage lost a rank: ", why.message()))
                .Node(DetailOf(why).node())
                .Fact("cause", ReasonOf(why));
  calls_.clear();
}

absl::Status LeaderShard::BreakAsHeard(const absl::Status& why) {
  if (ReasonOf(why) == kCollectiveTimeout) {
    return Break(why);
  }
  const std::vector<ByteColumns> nothing(ranks_);
  const absl::Status heard = own_->GatherBytes(nullptr, nothing);
  return Break(ReasonOf(heard) == kCollectiveAborted ? heard : why);
}

absl::Status LeaderShard::Of(uint32_t rank, const absl::Status& error) const {
  v1::ErrorDetail detail = DetailOf(error);
  detail.set_node(times_.names[rank]);
  (*detail.mutable_facts())[kRankFact] = absl::StrCat(rank);
  return Annotate(StatusOf(detail), absl::StrCat("rank ", rank, " (", times_.names[rank], ")"));
}

absl::Status LeaderShard::Send(const std::function<RankCall(uint32_t)>& call) {
  absl::Status status;
  {
    MutexLock lock(&mutex_);
    RETURN_IF_ERROR(broken_);
    status = SendFrame(call);
  }
  return status.ok() ? status : BreakAsHeard(status);
}

absl::Status LeaderShard::SendFrame(const std::function<RankCall(uint32_t)>& call) {
  ++number_;
  std::vector<size_t> sent(ranks_);
  for (uint32_t rank = 1; rank < ranks_; ++rank) {
    EncodeRankCall(call(rank), epoch_, number_, &frames_[rank]);
  }
  const TimePoint deadline = times_.clock->Now() + times_.timeout;
  uint64_t idle = 0;
  while (true) {
    bool moved = false;
    uint32_t waits_for = 0;
    for (uint32_t rank = 1; rank < ranks_; ++rank) {
      const std::span<const uint8_t> left = std::span(frames_[rank]).subspan(sent[rank]);
      if (left.empty()) {
        continue;
      }
      const absl::StatusOr<size_t> taken = calls_[rank]->Send(left);
      if (!taken.ok()) {
        return Of(rank, taken.status());
      }
      sent[rank] += *taken;
      moved = moved || *taken > 0;
      waits_for = *taken == left.size() ? waits_for : rank;
    }
    if (waits_for == 0) {
      return absl::OkStatus();
    }
    idle = moved ? 0 : idle + 1;
    if (idle > 0 && times_.clock->Now() >= deadline) {
      const auto ms = times_.timeout / milliseconds(1);
      return Of(waits_for, Error(absl::StatusCode::kDeadlineExceeded, kCollectiveTimeout,
                                 absl::StrCat("it did not take a call within ", ms, " ms"))
                               .Limit(absl::StrCat("wait_ms=", ms)));
    }
    if (idle > 0 && times_.pause) {
      times_.pause(idle);
    }
  }
}

absl::Status LeaderShard::OnAll(const RankCall& call, const std::function<absl::Status()>& own) {
  RETURN_IF_ERROR(Send(call));
  const absl::Status status = own();
  return status.ok() ? status : Break(status);
}

absl::Status LeaderShard::OnAllWithResidual(const RankCall& call,
                                            const std::function<absl::Status()>& own) {
  if (!std::exchange(shared_, true)) {
    RETURN_IF_ERROR(
        OnAll({.kind = RankCallKind::kShareResidual}, [&] { return own_->ShareResidual(); }));
  }
  return OnAll(call, own);
}

absl::Status LeaderShard::Begin(const Batch& batch) {
  // What was refused leaves no batch, on any rank.
  const absl::Status refused = own_->calls().Begin(batch);
  const Batch begun = refused.ok() ? batch : Batch{};
  shared_ = true;
  head_rows_ = 0;
  RETURN_IF_ERROR(
      OnAll({.kind = RankCallKind::kBegin, .batch = begun}, [&] { return own_->Begin(begun); }));
  return refused;
}

absl::Status LeaderShard::Embed() {
  RETURN_IF_ERROR(Broken());
  shared_ = false;
  return own_->Embed();
}

absl::Status LeaderShard::EmbedInputs(std::span<const uint32_t> rows,
                                      std::span<const float> values) {
  RETURN_IF_ERROR(Broken());
  shared_ = false;
  return own_->EmbedInputs(rows, values);
}

absl::Status LeaderShard::SetResidual(std::span<const float> values) {
  RETURN_IF_ERROR(Broken());
  shared_ = false;
  return own_->SetResidual(values);
}

absl::Status LeaderShard::Attention(uint32_t layer) {
  RETURN_IF_ERROR(own_->calls().Layer(layer));
  return OnAllWithResidual({.kind = RankCallKind::kAttention, .layer = layer},
                           [&] { return own_->Attention(layer); });
}

absl::Status LeaderShard::AttentionOfSome(uint32_t layer, std::span<const uint32_t> rows) {
  RETURN_IF_ERROR(own_->calls().AttentionOfSome(layer, rows, own_->batch().items));
  return OnAllWithResidual({.kind = RankCallKind::kAttentionOfSome, .layer = layer, .rows = rows},
                           [&] { return own_->AttentionOfSome(layer, rows); });
}

absl::Status LeaderShard::Mlp(uint32_t layer) {
  RETURN_IF_ERROR(own_->calls().Layer(layer));
  return OnAllWithResidual({.kind = RankCallKind::kMlp, .layer = layer},
                           [&] { return own_->Mlp(layer); });
}

absl::Status LeaderShard::ReadResidual(std::span<float> out) {
  RETURN_IF_ERROR(Broken());
  return own_->ReadResidual(out);
}

absl::Status LeaderShard::Head(std::span<const uint32_t> rows) {
  RETURN_IF_ERROR(own_->calls().Head(rows, own_->batch().rows));
  RETURN_IF_ERROR(OnAllWithResidual({.kind = RankCallKind::kHead, .rows = rows},
                                    [&] { return own_->Head(rows); }));
  head_rows_ = static_cast<uint32_t>(rows.size());
  return absl::OkStatus();
}

absl::Status LeaderShard::ReadLogits(std::span<float> out) {
  RETURN_IF_ERROR(own_->calls().Logits(out.size(), head_rows_));
  return OnAll({.kind = RankCallKind::kReadLogits}, [&] {
    RETURN_IF_ERROR(own_->ReadLogits(out));
    return own_->GatherLogits(out);
  });
}

absl::Status LeaderShard::CopyPage(uint32_t group, PageId from, PageId to) {
  RETURN_IF_ERROR(own_->calls().CopyPage(group, from, to));
  return OnAll({.kind = RankCallKind::kCopyPage, .group = group, .page = from, .to = to},
               [&] { return own_->CopyPage(group, from, to); });
}

absl::Status LeaderShard::Answered(const absl::Status& own) {
  const auto answers = GatherAnswers(own_.get(), kOwn, ranks_, own);
  if (!answers.ok()) {
    return Break(answers.status());
  }
  for (uint32_t rank = 0; rank < ranks_; ++rank) {
    if (const absl::Status& answer = (*answers)[rank]; !answer.ok()) {
      return rank == kOwn ? answer : Of(rank, answer);
    }
  }
  return absl::OkStatus();
}

uint64_t LeaderShard::PageBytes(uint32_t group) const { return PartsOf(group).whole_bytes; }

absl::Status LeaderShard::ReadPage(uint32_t group, PageId page, std::span<uint8_t> out) {
  const PageParts parts = PartsOf(group);
  RETURN_IF_ERROR(own_->calls().PageOf(group, page, parts.whole_bytes, out.size()));
  RETURN_IF_ERROR(Send({.kind = RankCallKind::kReadPage, .group = group, .page = page}));
  parts_.resize(parts.columns.back().end);
  const ByteColumns& own = parts.columns[kOwn];
  RETURN_IF_ERROR(Answered(own.size() == 0
                               ? absl::OkStatus()
                               : own_->ReadPage(group, page, std::span(parts_).first(own.size()))));
  if (const absl::Status gathered = own_->GatherBytes(parts_.data(), parts.columns);
      !gathered.ok()) {
    return Break(gathered);
  }
  own_->ForPageParts(group, [&](size_t rank, size_t at, size_t of_whole, size_t bytes) {
    std::memcpy(out.data() + of_whole, parts_.data() + parts.columns[rank].begin + at, bytes);
  });
  return absl::OkStatus();
}

absl::Status LeaderShard::WritePage(uint32_t group, PageId page, std::span<const uint8_t> in) {
  const PageParts parts = PartsOf(group);
  RETURN_IF_ERROR(own_->calls().PageOf(group, page, parts.whole_bytes, in.size()));
  parts_.resize(parts.columns.back().end);
  own_->ForPageParts(group, [&](size_t rank, size_t at, size_t of_whole, size_t bytes) {
    std::memcpy(parts_.data() + parts.columns[rank].begin + at, in.data() + of_whole, bytes);
  });
  const auto part = [&](uint32_t rank) {
    return std::span<const uint8_t>(parts_).subspan(parts.columns[rank].begin,
                                                    parts.columns[rank].size());
  };
  RETURN_IF_ERROR(Send([&](uint32_t rank) {
    return RankCall{
        .kind = RankCallKind::kWritePage, .group = group, .page = page, .page_bytes = part(rank)};
  }));
  return Answered(part(kOwn).empty() ? absl::OkStatus() : own_->WritePage(group, page, part(kOwn)));
}

absl::Status LeaderShard::ResizeAll(std::span<const uint64_t> pages) {
  RETURN_IF_ERROR(Send({.kind = RankCallKind::kResizeKv, .kv_pages = pages}));
  return Answered(own_->ResizeKv(pages));
}

absl::Status LeaderShard::ResizeKv(std::span<const uint64_t> pages) {
  RETURN_IF_ERROR(own_->calls().ResizeKv(pages));
  head_rows_ = 0;
  // A rank gives up its own before it takes new ones. Where one cannot, none has any.
  const absl::Status status = ResizeAll(pages);
  if (!status.ok() && ReasonOf(status) != kRanksBroken) {
    RETURN_IF_ERROR(ResizeAll(std::vector<uint64_t>(pages.size())));
  }
  return status;
}

}  // namespace strata
