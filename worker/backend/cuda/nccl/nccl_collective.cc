#include "worker/backend/cuda/nccl/nccl_collective.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <string>
#include <thread>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/check.h"
#include "common/mutex.h"
#include "common/status.h"
#include "worker/backend/cuda/nccl/nccl_library.h"
#include "worker/collective/rank_frame.h"
#include "worker/collective/thread_collective.h"

namespace strata::cuda {
namespace {

bool IsFine(NcclResult result) {
  return result == NcclResult::kSuccess || result == NcclResult::kInProgress;
}

// Which call answered what.
struct Answer {
  const char* call = "";
  NcclResult result = NcclResult::kSuccess;
};

// The communicators of all ranks, and what broke them. Any thread.
class Communicators {
 public:
  Communicators(const NcclCalls& calls, std::span<const std::shared_ptr<Device>> devices,
                const NcclCollectiveOptions& options)
      : calls_(calls),
        options_(options),
        controls_(MakeThreadCollectives(static_cast<uint32_t>(devices.size()),
                                        {.timeout = options.timeout, .clock = options.clock})),
        members_(devices.size()) {
    for (size_t rank = 0; rank < devices.size(); ++rank) {
      members_[rank].device = devices[rank];
    }
  }
  ~Communicators() { AbortAll(); }

  uint32_t ranks() const { return static_cast<uint32_t>(members_.size()); }
  Device& device(uint32_t rank) const { return *members_[rank].device; }
  // What ranks tell each other on the host.
  Collective& control(uint32_t rank) const { return *controls_[rank]; }

  // All ranks at once, each on a thread.
  absl::Status Join(uint32_t rank, const NcclUniqueId& id) {
    RETURN_IF_ERROR(device(rank).MakeCurrent());
    NcclConfig config;
    config.blocking = 0;
    config.max_ctas = options_.most_channels;
    {
      Member& member = members_[rank];
      MutexLock lock(&member.mutex);
      RETURN_IF_ERROR(Broken(rank));
      NcclComm* made = nullptr;
      Answer answer = {"ncclCommInitRankConfig"};
      answer.result = calls_.comm_init_rank_config(&made, static_cast<int>(ranks()), id,
                                                   static_cast<int>(rank), &config);
      if (IsFine(answer.result) && made == nullptr) {
        answer.result = NcclResult::kInternalError;
      }
      if (!IsFine(answer.result)) {
        return NcclError(calls_, nullptr, answer.call, answer.result);
      }
      member.comm = made;
    }
    return Settle(
        rank, "ncclCommInitRankConfig",
        options_.join_timeout == nanoseconds(0) ? options_.timeout : options_.join_timeout);
  }

  // What `call` answers of the rank's communicator, and what came of it once NCCL has begun it.
  absl::Status Call(uint32_t rank, const std::function<Answer(NcclComm*)>& call) {
    Answer answer;
    {
      Member& member = members_[rank];
      MutexLock lock(&member.mutex);
      if (member.comm == nullptr) {
        return Broken(rank);
      }
      answer = call(member.comm);
      if (!IsFine(answer.result)) {
        return NcclError(calls_, member.comm, answer.call, answer.result);
      }
    }
    return Settle(rank, answer.call, options_.timeout);
  }

  // Whether nothing is in progress any more; or what went wrong, in the background too.
  absl::StatusOr<bool> Look(uint32_t rank, const char* call) {
    Member& member = members_[rank];
    MutexLock lock(&member.mutex);
    if (member.comm == nullptr) {
      return Broken(rank);
    }
    NcclResult state = NcclResult::kSuccess;
    if (const NcclResult asked = calls_.comm_get_async_error(member.comm, &state);
        asked != NcclResult::kSuccess) {
      return NcclError(calls_, member.comm, "ncclCommGetAsyncError", asked);
    }
    if (!IsFine(state)) {
      return NcclError(calls_, member.comm, call, state);
    }
    return state == NcclResult::kSuccess;
  }

  // Until look() says so, or why not; COLLECTIVE_TIMEOUT with `late`.
  absl::Status Await(const std::function<absl::StatusOr<bool>()>& look, const std::string& late) {
    return Await(look, late, options_.timeout);
  }
  absl::Status Await(const std::function<absl::StatusOr<bool>()>& look, const std::string& late,
                     nanoseconds timeout) {
    const TimePoint deadline = options_.clock->Now() + timeout;
    while (true) {
      ASSIGN_OR_RETURN(const bool done, look());
      if (done) {
        return absl::OkStatus();
      }
      if (options_.clock->Now() >= deadline) {
        const auto ms = timeout / milliseconds(1);
        return Error(absl::StatusCode::kDeadlineExceeded, kCollectiveTimeout,
                     absl::StrCat(late, " within ", ms, " ms"))
            .Limit(absl::StrCat("wait_ms=", ms));
      }
      if (options_.pause) {
        options_.pause();
      } else {
        std::this_thread::yield();
      }
    }
  }

  // Why the rank can go on no more, or ok.
  absl::Status Broken(uint32_t rank) {
    if (!broken_.load()) {
      return absl::OkStatus();
    }
    MutexLock lock(&mutex_);
    if (rank == breaker_ || absl::StartsWith(ReasonOf(why_), "COLLECTIVE_")) {
      return why_;
    }
    return Error(absl::StatusCode::kAborted, kCollectiveAborted,
                 absl::StrCat("rank ", breaker_, " gave up: ", why_.message()));
  }

  // Ends all that is under way. What the rank is told, which is what broke them first.
  absl::Status Break(uint32_t rank, const absl::Status& why) {
    absl::Status cause = why;
    if (ReasonOf(why) == kNcclFailed) {
      // Rather what the device says, where it is of no use any more.
      (void)device(rank).Memory();
      const absl::Status health = device(rank).Health();
      cause = health.ok() ? why : health;
    }
    {
      MutexLock lock(&mutex_);
      if (why_.ok()) {
        why_ = cause;
        breaker_ = rank;
        broken_.store(true);
      }
    }
    controls_[rank]->Abort(cause);
    AbortAll();
    return Broken(rank);
  }

 private:
  struct Member {
    std::shared_ptr<Device> device;
    Mutex mutex;                                        // Of one call, none of which waits.
    NcclComm* comm STRATA_GUARDED_BY(mutex) = nullptr;  // Null: not joined, or aborted.
  };

  absl::Status Settle(uint32_t rank, const char* call, nanoseconds timeout) {
    return Await([&] { return Look(rank, call); },
                 absl::StrCat("NCCL did not begin ", call, " of rank ", rank), timeout);
  }

  // NCCL wants all ranks of a machine to abort at once.
  void AbortAll() {
    for (Member& member : members_) {
      NcclComm* comm = nullptr;
      {
        MutexLock lock(&member.mutex);
        comm = std::exchange(member.comm, nullptr);
      }
      if (comm == nullptr) {
        continue;
      }
      aborting_->fetch_add(1);
      std::thread([left = aborting_, comm, device = member.device, abort = calls_.comm_abort] {
        (void)device->MakeCurrent();
        (void)abort(comm);
        left->fetch_sub(1);
      }).detach();
    }
    (void)Await([&]() -> absl::StatusOr<bool> { return aborting_->load() == 0; }, "");
  }

  const NcclCalls calls_;
  const NcclCollectiveOptions options_;
  const std::vector<std::unique_ptr<Collective>> controls_;
  std::vector<Member> members_;
  // Calls of ncclCommAbort that have not returned.
  const std::shared_ptr<std::atomic<size_t>> aborting_ = std::make_shared<std::atomic<size_t>>(0);
  std::atomic<bool> broken_{false};
  Mutex mutex_;
  absl::Status why_ STRATA_GUARDED_BY(mutex_);
  uint32_t breaker_ STRATA_GUARDED_BY(mutex_) = 0;
};

size_t WidthOf(std::span<const ByteColumns> columns) {
  size_t width = 0;
  for (const ByteColumns& one : columns) {
    width += one.size();
  }
  return width;
}

class NcclCollective : public Collective {
 public:
  NcclCollective(std::shared_ptr<Communicators> all, uint32_t rank, const NcclCalls& calls,
                 std::shared_ptr<Device> device)
      : all_(std::move(all)), rank_(rank), calls_(calls), device_(std::move(device)) {
    columns_.resize(ranks());
    for (size_t i = 0; i < columns_.size(); ++i) {
      columns_[i] = {i * sizeof(Shape), (i + 1) * sizeof(Shape)};
    }
    shapes_.fill(std::vector<Shape>(ranks()));
  }
  // What the device may still be at uses what goes with this: it ends first.
  ~NcclCollective() override {
    (void)all_->Break(rank_, absl::CancelledError("the rank's end was destroyed"));
    (void)device_->MakeCurrent();
  }

  absl::Status Prepare(uint64_t staging_bytes) {
    RETURN_IF_ERROR(device_->MakeCurrent());
    RETURN_IF_ERROR(staging_.Allocate(device_.get(), staging_bytes, "rows on their way"));
    ASSIGN_OR_RETURN(const Event event, device_->MakeEvent());
    done_ = OwnedEvent(device_.get(), event);
    return absl::OkStatus();
  }

  uint32_t rank() const override { return rank_; }
  uint32_t ranks() const override { return all_->ranks(); }

  absl::Status Gather(const CollectivePoint& point, const GatheredRows& rows) override {
    STRATA_CHECK(rows.columns.size() == ranks() && WidthOf(rows.columns) <= staging_.bytes());
    return OrBreak([&]() -> absl::Status {
      RETURN_IF_ERROR(Agree(point, rows));
      return Put(rows);
    });
  }

  absl::Status Barrier(const CollectivePoint& point) override {
    return OrBreak([&] { return all_->control(rank_).Barrier(point); });
  }

  absl::Status Finish() override {
    return OrBreak([&]() -> absl::Status {
      RETURN_IF_ERROR(device_->Record(done_.get(), device_->stream()));
      return all_->Await(
          [&]() -> absl::StatusOr<bool> {
            RETURN_IF_ERROR(all_->Look(rank_, "a gather").status());
            return device_->IsPast(done_.get());
          },
          absl::StrCat("what rank ", rank_, " gathers did not come"));
    });
  }

  void Abort(const absl::Status& why) override { (void)all_->Break(rank_, why); }

 private:
  // What ranks compare before they put anything on a stream.
  struct Shape {
    uint64_t rows = 0;
    uint64_t stride = 0;
    uint64_t columns = 0;
    uint64_t to_first = 0;
    bool operator==(const Shape&) const = default;
  };

  absl::Status OrBreak(const std::function<absl::Status()>& call) {
    RETURN_IF_ERROR(all_->Broken(rank_));
    absl::Status status = device_->Health();
    if (status.ok()) {
      status = call();
    }
    if (status.ok()) {
      return status;
    }
    return all_->Break(rank_, status);
  }

  absl::Status Agree(const CollectivePoint& point, const GatheredRows& rows) {
    // Others may still read those of the call before.
    shapes_[0].swap(shapes_[1]);
    std::vector<Shape>& shapes = shapes_[0];
    shapes[rank_] = {.rows = rows.rows,
                     .stride = rows.stride,
                     .columns = ShapeOf(rows.columns),
                     .to_first = rows.to_first};
    RETURN_IF_ERROR(
        all_->control(rank_).Gather(point, {.data = reinterpret_cast<uint8_t*>(shapes.data()),
                                            .rows = 1,
                                            .stride = shapes.size() * sizeof(Shape),
                                            .columns = columns_}));
    for (uint32_t other = 1; other < ranks(); ++other) {
      if (shapes[other] != shapes[0]) {
        return Error(
            absl::StatusCode::kInternal, kCollectiveDiffers,
            absl::StrCat("at call ", point.call, " of step ", point.step, " of epoch ", point.epoch,
                         " rank 0 gathers ", shapes[0].rows, " rows, and rank ", other, " ",
                         shapes[other].rows, " or others of their columns"));
      }
    }
    return absl::OkStatus();
  }

  // With to_first, too, all ranks get all columns.
  absl::Status Put(const GatheredRows& rows) {
    const size_t width = WidthOf(rows.columns);
    if (width == 0 || rows.rows == 0) {
      return absl::OkStatus();
    }
    std::vector<ByteColumns> parts(rows.columns.begin(), rows.columns.end());
    // Rows of one rank that lie one behind another are one.
    const bool whole = std::any_of(parts.begin(), parts.end(), [&](const ByteColumns& one) {
      return one.size() == width && width == rows.stride;
    });
    if (whole) {
      for (ByteColumns& part : parts) {
        part.end = part.begin + part.size() * rows.rows;
      }
    }
    if (whole || rows.rows == 1) {
      return Exchange(rows.data, parts);
    }
    const size_t at_once = staging_.bytes() / width;
    for (size_t first = 0; first < rows.rows; first += at_once) {
      RETURN_IF_ERROR(PutPacked(rows, first, std::min(at_once, rows.rows - first)));
    }
    return absl::OkStatus();
  }

  // Rows [first, first + count), by way of the staging memory.
  absl::Status PutPacked(const GatheredRows& rows, size_t first, size_t count) {
    std::vector<ByteColumns> parts;
    for (size_t at = 0; const ByteColumns& one : rows.columns) {
      parts.push_back({at, at + one.size() * count});
      at = parts.back().end;
    }
    const auto in_rows = [&](uint32_t rank) {
      return DeviceRows{rows.data + first * rows.stride + rows.columns[rank].begin, rows.stride};
    };
    const auto packed = [&](uint32_t rank) {
      return DeviceRows{staging_.as() + parts[rank].begin, rows.columns[rank].size()};
    };
    if (parts[rank_].size() != 0) {
      RETURN_IF_ERROR(
          device_->CopyRows(packed(rank_), in_rows(rank_), packed(rank_).stride, count));
    }
    RETURN_IF_ERROR(Exchange(staging_.as(), parts));
    for (uint32_t rank = 0; rank < ranks(); ++rank) {
      if (rank != rank_ && parts[rank].size() != 0) {
        RETURN_IF_ERROR(device_->CopyRows(in_rows(rank), packed(rank), packed(rank).stride, count));
      }
    }
    return absl::OkStatus();
  }

  // Fills in the others' parts of `data`.
  absl::Status Exchange(uint8_t* data, std::span<const ByteColumns> parts) {
    const size_t size = parts[0].size();
    bool even = true;
    for (size_t i = 0; i < parts.size(); ++i) {
      even = even && parts[i].size() == size && parts[i].begin == parts[0].begin + i * size;
    }
    return all_->Call(rank_, [&](NcclComm* comm) {
      return even ? AllGather(data + parts[0].begin, size, comm) : Broadcasts(data, parts, comm);
    });
  }

  Answer AllGather(uint8_t* data, size_t size, NcclComm* comm) {
    return {"ncclAllGather", calls_.all_gather(data + rank_ * size, data, size,
                                               NcclDataType::kUint8, comm, device_->stream())};
  }

  Answer Broadcasts(uint8_t* data, std::span<const ByteColumns> parts, NcclComm* comm) {
    if (const NcclResult result = calls_.group_start(); !IsFine(result)) {
      return {"ncclGroupStart", result};
    }
    NcclResult result = NcclResult::kSuccess;
    for (size_t root = 0; root < parts.size() && IsFine(result); ++root) {
      if (parts[root].size() != 0) {
        uint8_t* const part = data + parts[root].begin;
        result = calls_.broadcast(part, part, parts[root].size(), NcclDataType::kUint8,
                                  static_cast<int>(root), comm, device_->stream());
      }
    }
    // The group ends in any case: it is the thread's.
    const NcclResult ended = calls_.group_end();
    return IsFine(result) ? Answer{"ncclGroupEnd", ended} : Answer{"ncclBroadcast", result};
  }

  const std::shared_ptr<Communicators> all_;
  const uint32_t rank_;
  const NcclCalls calls_;
  const std::shared_ptr<Device> device_;
  std::vector<ByteColumns> columns_;  // Of shapes.
  std::array<std::vector<Shape>, 2> shapes_;
  DeviceBuffer staging_;
  OwnedEvent done_;
};

// The first error that is no rank's echo of another's.
absl::Status FirstOf(const std::vector<absl::Status>& statuses) {
  absl::Status first;
  for (const absl::Status& status : statuses) {
    if (!status.ok() && (first.ok() || ReasonOf(first) == kCollectiveAborted)) {
      first = status;
    }
  }
  return first;
}

}  // namespace

absl::StatusOr<std::vector<std::unique_ptr<Collective>>> MakeNcclCollectives(
    const NcclCalls& calls, std::span<const std::shared_ptr<Device>> devices,
    const NcclCollectiveOptions& options) {
  STRATA_CHECK(!devices.empty() && options.clock != nullptr);
  RETURN_IF_ERROR(CheckNcclVersion(calls));
  NcclUniqueId id;
  if (const NcclResult result = calls.get_unique_id(&id); result != NcclResult::kSuccess) {
    return NcclError(calls, nullptr, "ncclGetUniqueId", result);
  }
  const auto all = std::make_shared<Communicators>(calls, devices, options);
  std::vector<absl::Status> statuses(devices.size());
  std::vector<std::unique_ptr<NcclCollective>> ends;
  for (uint32_t rank = 0; rank < devices.size(); ++rank) {
    ends.push_back(std::make_unique<NcclCollective>(all, rank, calls, devices[rank]));
  }
  std::vector<std::thread> joining;
  for (uint32_t rank = 0; rank < devices.size(); ++rank) {
    joining.emplace_back([&, rank] {
      absl::Status status = all->Join(rank, id);
      if (status.ok()) {
        status = ends[rank]->Prepare(options.staging_bytes);
      }
      statuses[rank] = status.ok() ? status : all->Break(rank, status);
    });
  }
  for (std::thread& thread : joining) {
    thread.join();
  }
  RETURN_IF_ERROR(FirstOf(statuses));
  return std::vector<std::unique_ptr<Collective>>(std::make_move_iterator(ends.begin()),
                                                  std::make_move_iterator(ends.end()));
}

}  // namespace strata::cuda
