#include "worker/collective/channel_collective.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <cstring>
#include <optional>
#include <string>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "common/check.h"
#include "common/digest.h"
#include "common/mutex.h"
#include "common/status.h"
#include "worker/collective/rank_frame.h"
#include "worker/collective/rank_policy.h"

namespace strata {
namespace {

std::string PointText(const CollectivePoint& point) {
  return absl::StrCat("call ", point.call, " of step ", point.step, " of epoch ", point.epoch);
}

class ChannelCollective : public Collective {
 public:
  ChannelCollective(uint32_t rank, std::vector<std::unique_ptr<RankChannel>> channels,
                    const ChannelCollectiveOptions& options)
      : rank_(rank), options_(options), peers_(channels.size()) {
    for (size_t i = 0; i < channels.size(); ++i) {
      peers_[i].channel = std::move(channels[i]);
    }
  }

  uint32_t rank() const override { return rank_; }
  uint32_t ranks() const override { return static_cast<uint32_t>(peers_.size()); }

  absl::Status Gather(const CollectivePoint& point, const GatheredRows& rows) override {
    STRATA_CHECK(rows.columns.size() == ranks());
    return Call(rows.to_first ? RankFrameKind::kGatherToFirst : RankFrameKind::kGather, point,
                rows);
  }
  absl::Status Barrier(const CollectivePoint& point) override {
    return Call(RankFrameKind::kBarrier, point, {});
  }
  void Abort(const absl::Status& why) override {
    {
      MutexLock lock(&mutex_);
      if (why_.ok()) {
        why_ = Aborted(rank_, CauseOf(why).value_or(rank_), why.message());
        broken_.store(true);
      }
    }
    TellIfIdle();
  }

 private:
  // A frame on its way to another rank, and the one that comes from it. Once that has come, and
  // while it has not taken all that goes to it, nothing but an abort or the end can follow: a rank
  // begins its next call when it has all frames of this one. What was read of that stays for the
  // next call.
  struct Peer {
    std::unique_ptr<RankChannel> channel;
    std::array<uint8_t, kRankFrameHeadBytes> sent_head;
    std::array<uint8_t, kRankFrameHeadBytes> head;
    std::vector<uint8_t> bytes;  // What comes behind the head.
    size_t bytes_to = 0;         // What goes to it behind the head.
    size_t sent = 0;             // Of head and bytes.
    size_t received = 0;  // Of head and bytes of the frame that comes, or of what follows it.
    bool aborts = false;  // What comes is an abort.
    bool done = false;    // All has come and is right.

    bool all_sent() const { return sent == kRankFrameHeadBytes + bytes_to; }
  };

  absl::Status Call(RankFrameKind kind, const CollectivePoint& point, const GatheredRows& rows) {
    absl::Status status;
    {
      MutexLock io(&io_mutex_);
      status = Broken();
      if (status.ok()) {
        status = Exchange(kind, point, rows);
        if (!status.ok()) {
          status = Break(status);
        }
      }
      if (!status.ok()) {
        Tell();
      }
    }
    TellIfIdle();
    return status;
  }

  std::string NameOf(size_t rank) const {
    return options_.names.empty() ? absl::StrCat("rank ", rank)
                                  : absl::StrCat("rank ", rank, " (", options_.names[rank], ")");
  }

  // Which rank an error says is its cause.
  std::optional<uint32_t> CauseOf(const absl::Status& status) const {
    const v1::ErrorDetail detail = DetailOf(status);
    const auto fact = detail.facts().find(kRankFact);
    uint32_t rank = 0;
    const bool said = fact != detail.facts().end() && absl::SimpleAtoi(fact->second, &rank);
    return said && rank < ranks() ? std::optional<uint32_t>(rank) : std::nullopt;
  }
  absl::Status Because(uint32_t rank, Error error) const {
    return std::move(error)
        .Node(options_.names.empty() ? std::string() : options_.names[rank])
        .Fact(kRankFact, uint64_t{rank});
  }
  absl::Status Aborted(uint32_t rank, uint32_t cause, absl::string_view why) const {
    return Because(cause, Error(absl::StatusCode::kAborted, kCollectiveAborted,
                                absl::StrCat(NameOf(rank), " gave up: ", std::string(why))));
  }

  absl::Status Exchange(RankFrameKind kind, const CollectivePoint& point, const GatheredRows& rows)
      STRATA_REQUIRES(io_mutex_) {
    Pack(rows);
    RankFrameHead own = {.kind = kind,
                         .rank = rank_,
                         .point = point,
                         .rows = rows.rows,
                         .shape = ShapeOf(rows.columns)};
    const uint32_t crc = Crc32c(0, packed_.data(), packed_.size());
    for (uint32_t other = 0; other < ranks(); ++other) {
      Peer& peer = peers_[other];
      peer.bytes_to = !rows.to_first || other == 0 ? packed_.size() : 0;
      own.bytes = peer.bytes_to;
      own.crc = peer.bytes_to > 0 ? crc : 0;
      EncodeRankFrameHead(own, peer.sent_head);
      peer.sent = 0;
      peer.done = peer.channel == nullptr;
    }
    const TimePoint deadline = options_.clock->Now() + options_.timeout;
    uint64_t idle = 0;
    while (true) {
      bool moved = false;
      bool all = true;
      for (uint32_t other = 0; other < ranks(); ++other) {
        Peer& peer = peers_[other];
        if (peer.channel == nullptr) {
          continue;
        }
        // What came first: of a rank that is gone it may say why.
        ASSIGN_OR_RETURN(const bool came, ReceiveSome(own, rows, other));
        ASSIGN_OR_RETURN(const bool went, SendSome(other));
        moved = moved || came || went;
        // Who takes nothing more of it may have given up.
        if (!went && peer.done && !peer.all_sent()) {
          ASSIGN_OR_RETURN(const bool more, ReceiveOfFrame(own, rows, other));
          moved = moved || more;
        }
        all = all && peer.done && peer.all_sent();
      }
      if (all) {
        return absl::OkStatus();
      }
      if (rank_policy::HearsItsOwnAbort()) {
        RETURN_IF_ERROR(Broken());
      }
      idle = moved ? 0 : idle + 1;
      if (idle > 0) {
        if (options_.clock->Now() >= deadline) {
          return Late(point);
        }
        if (options_.pause) {
          options_.pause(idle);
        }
      }
    }
  }

  // This rank's columns, one row behind another.
  void Pack(const GatheredRows& rows) STRATA_REQUIRES(io_mutex_) {
    const ByteColumns own = rows.columns.empty() ? ByteColumns{} : rows.columns[rank_];
    packed_.resize(rows.rows * own.size());
    for (size_t row = 0; row < rows.rows && own.size() > 0; ++row) {
      std::memcpy(packed_.data() + row * own.size(), rows.data + row * rows.stride + own.begin,
                  own.size());
    }
  }

  absl::StatusOr<bool> SendSome(uint32_t other) STRATA_REQUIRES(io_mutex_) {
    Peer& peer = peers_[other];
    bool moved = false;
    while (!peer.all_sent()) {
      const bool in_head = peer.sent < kRankFrameHeadBytes;
      const std::span<const uint8_t> left =
          in_head ? std::span<const uint8_t>(peer.sent_head).subspan(peer.sent)
                  : std::span<const uint8_t>(packed_).subspan(peer.sent - kRankFrameHeadBytes);
      const absl::StatusOr<size_t> taken = peer.channel->Send(left);
      if (!taken.ok()) {
        return Aborted(other, other, taken.status().message());
      }
      if (*taken == 0) {
        break;
      }
      peer.sent += *taken;
      moved = true;
    }
    return moved;
  }

  absl::StatusOr<bool> ReceiveSome(const RankFrameHead& own, const GatheredRows& rows,
                                   uint32_t other) STRATA_REQUIRES(io_mutex_) {
    bool moved = false;
    while (!peers_[other].done) {
      ASSIGN_OR_RETURN(const bool more, ReceiveOfFrame(own, rows, other));
      if (!more) {
        break;
      }
      moved = true;
    }
    return moved;
  }

  // Whether some came of a frame's head, or of what is behind it; once all has, it is taken.
  absl::StatusOr<bool> ReceiveOfFrame(const RankFrameHead& own, const GatheredRows& rows,
                                      uint32_t other) STRATA_REQUIRES(io_mutex_) {
    Peer& peer = peers_[other];
    const bool in_head = peer.received < kRankFrameHeadBytes;
    const std::span<uint8_t> left =
        in_head ? std::span<uint8_t>(peer.head).subspan(peer.received)
                : std::span<uint8_t>(peer.bytes).subspan(peer.received - kRankFrameHeadBytes);
    if (!left.empty()) {
      const absl::StatusOr<size_t> filled = peer.channel->Receive(left);
      if (!filled.ok()) {
        return Aborted(other, other, filled.status().message());
      }
      if (*filled == 0) {
        return false;
      }
      peer.received += *filled;
    }
    if (peer.received == kRankFrameHeadBytes && in_head) {
      RETURN_IF_ERROR(TakeHead(own, rows, other));
    }
    if (peer.received == kRankFrameHeadBytes + peer.bytes.size() && !in_head) {
      RETURN_IF_ERROR(TakeBytes(rows, other));
    }
    return true;
  }

  // What comes behind a head is as long as this rank expects, so that nothing that came says how
  // much memory is taken.
  absl::Status TakeHead(const RankFrameHead& own, const GatheredRows& rows, uint32_t other)
      STRATA_REQUIRES(io_mutex_) {
    Peer& peer = peers_[other];
    ASSIGN_OR_RETURN(const RankFrameHead head, DecodeRankFrameHead(peer.head));
    peer.aborts = head.kind == RankFrameKind::kAbort;
    if (peer.aborts) {
      peer.bytes.resize(head.bytes);
      return absl::OkStatus();
    }
    const bool takes = !rows.columns.empty() && (rank_ == 0 || !rows.to_first);
    const uint64_t expected = takes ? rows.rows * rows.columns[other].size() : 0;
    if (head.rank != other || !rank_policy::IsOfCall(own, head) || head.bytes != expected ||
        peer.done) {
      return Error(absl::StatusCode::kInternal, kCollectiveDiffers,
                   absl::StrCat(NameOf(rank_), " is at ", PointText(own.point), " with ", own.rows,
                                " rows, and ", NameOf(other), " at ", PointText(head.point),
                                " with ", head.rows));
    }
    peer.bytes.resize(expected);
    return absl::OkStatus();
  }

  absl::Status TakeBytes(const GatheredRows& rows, uint32_t other) STRATA_REQUIRES(io_mutex_) {
    Peer& peer = peers_[other];
    ASSIGN_OR_RETURN(const RankFrameHead head, DecodeRankFrameHead(peer.head));
    if (Crc32c(0, peer.bytes.data(), peer.bytes.size()) != head.crc) {
      return Error(
          absl::StatusCode::kDataLoss, kRankFrame,
          absl::StrCat("what ", NameOf(other), " sent for ", PointText(head.point), " is damaged"));
    }
    if (peer.aborts) {
      const bool says = head.rows > 0 && head.rows <= ranks();
      return Aborted(
          other, says ? static_cast<uint32_t>(head.rows - 1) : other,
          absl::string_view(reinterpret_cast<const char*>(peer.bytes.data()), peer.bytes.size()));
    }
    if (!peer.bytes.empty()) {
      const auto before = std::count_if(peers_.begin(), peers_.end(), [](const Peer& one) {
        return one.channel != nullptr && one.done;
      });
      const ByteColumns& columns =
          rows.columns[rank_policy::ColumnsOf(rank_, other, static_cast<uint32_t>(before))];
      STRATA_CHECK(peer.bytes.size() == rows.rows * columns.size());
      for (size_t row = 0; row < rows.rows; ++row) {
        std::memcpy(rows.data + row * rows.stride + columns.begin,
                    peer.bytes.data() + row * columns.size(), columns.size());
      }
    }
    peer.done = true;
    peer.received = 0;
    return absl::OkStatus();
  }

  absl::Status Late(const CollectivePoint& point) STRATA_REQUIRES(io_mutex_) {
    auto late =
        std::find_if(peers_.begin(), peers_.end(), [](const Peer& peer) { return !peer.done; });
    const bool came = late == peers_.end();
    if (came) {
      late = std::find_if(peers_.begin(), peers_.end(), [](const Peer& peer) {
        return peer.channel != nullptr && !peer.all_sent();
      });
    }
    const auto rank = static_cast<uint32_t>(late - peers_.begin());
    const auto ms = options_.timeout / milliseconds(1);
    return Because(
        rank, Error(absl::StatusCode::kDeadlineExceeded, kCollectiveTimeout,
                    absl::StrCat(NameOf(rank),
                                 came ? " did not take what was sent for " : " did not come to ",
                                 PointText(point), " within ", ms, " ms"))
                  .Limit(absl::StrCat("wait_ms=", ms)));
  }

  absl::Status Broken() {
    if (!broken_.load()) {
      return absl::OkStatus();
    }
    MutexLock lock(&mutex_);
    return why_;
  }

  // Returns what broke it first.
  absl::Status Break(const absl::Status& why) {
    MutexLock lock(&mutex_);
    if (why_.ok()) {
      why_ = why;
      broken_.store(true);
    }
    return why_;
  }

  // Tells the others, once, and sends nothing more. Where a frame is on its way to a rank, its end
  // has to do: what comes behind would be taken for the frame's.
  void Tell() STRATA_REQUIRES(io_mutex_) {
    if (std::exchange(told_, true)) {
      return;
    }
    const absl::Status why = Broken();
    const std::string text(why.message().substr(0, kMaxAbortBytes));
    const std::optional<uint32_t> cause = CauseOf(why);
    const RankFrameHead head = {.kind = RankFrameKind::kAbort,
                                .rank = rank_,
                                .point = {},
                                .rows = cause ? uint64_t{*cause} + 1 : 0,
                                .bytes = text.size(),
                                .crc = Crc32c(0, text.data(), text.size())};
    std::array<uint8_t, kRankFrameHeadBytes> bytes;
    EncodeRankFrameHead(head, bytes);
    std::vector<uint8_t> frame(bytes.begin(), bytes.end());
    frame.insert(frame.end(), text.begin(), text.end());
    for (Peer& peer : peers_) {
      if (peer.channel == nullptr) {
        continue;
      }
      if (peer.sent == 0 || peer.all_sent()) {
        (void)peer.channel->Send(frame);
      }
      peer.channel->EndSending();
    }
  }

  // Where a call is under way it tells when it looks again, or when it ends.
  void TellIfIdle() {
    if (broken_.load() && io_mutex_.TryLock()) {
      Tell();
      io_mutex_.Unlock();
    }
  }

  const uint32_t rank_;
  const ChannelCollectiveOptions options_;
  Mutex io_mutex_;  // Of a call, or of who tells.
  std::vector<Peer> peers_ STRATA_GUARDED_BY(io_mutex_);
  std::vector<uint8_t> packed_ STRATA_GUARDED_BY(io_mutex_);  // What this rank sends.
  bool told_ STRATA_GUARDED_BY(io_mutex_) = false;
  std::atomic<bool> broken_{false};
  Mutex mutex_;
  absl::Status why_ STRATA_GUARDED_BY(mutex_);
};

}  // namespace

std::unique_ptr<Collective> MakeChannelCollective(
    uint32_t rank, std::vector<std::unique_ptr<RankChannel>> channels,
    const ChannelCollectiveOptions& options) {
  STRATA_CHECK(rank < channels.size() && channels[rank] == nullptr && options.clock != nullptr);
  STRATA_CHECK(options.names.empty() || options.names.size() == channels.size());
  return std::make_unique<ChannelCollective>(rank, std::move(channels), options);
}

}  // namespace strata
