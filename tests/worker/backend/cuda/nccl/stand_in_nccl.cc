#include "tests/worker/backend/cuda/nccl/stand_in_nccl.h"

#include <algorithm>
#include <cstring>

#include "common/check.h"
#include "tests/worker/backend/cuda/nccl/host_device.h"

namespace strata::testing {

using cuda::NcclComm;
using cuda::NcclResult;

namespace {

StandInNccl* current = nullptr;
// Of this thread: whether it is within a group, and what was put into it.
thread_local bool in_group = false;

void PutOnHost(cuda::Stream stream, std::function<bool()> work) {
  static_cast<HostStream*>(stream)->Put(std::move(work));
}

}  // namespace

// As functions that a table can have.
struct StandInCalls {
  using Comm = StandInNccl::Comm;
  using Part = StandInNccl::Part;
  struct Grouped {
    Comm* comm = nullptr;
    cuda::Stream stream = nullptr;
    std::vector<Part> parts;
  };
  static thread_local Grouped grouped;

  static Comm* Of(NcclComm* comm) { return reinterpret_cast<Comm*>(comm); }

  static NcclResult GetVersion(int* version) {
    MutexLock lock(&current->mutex_);
    *version = current->version_;
    return current->Answer(NcclCall::kGetVersion, std::nullopt);
  }
  static const char* GetErrorString(NcclResult result) {
    return result == NcclResult::kRemoteError ? "remote process exited" : "an error of the test";
  }
  static const char* GetLastError(NcclComm* comm) {
    return comm == nullptr ? nullptr : "and why it was so";
  }
  static NcclResult GetUniqueId(cuda::NcclUniqueId* id) {
    MutexLock lock(&current->mutex_);
    std::memset(id->internal, ++current->last_id_, sizeof(id->internal));
    return current->Answer(NcclCall::kGetUniqueId, std::nullopt);
  }
  static NcclResult Init(NcclComm** comm, int ranks, cuda::NcclUniqueId id, int rank,
                         cuda::NcclConfig* config) {
    MutexLock lock(&current->mutex_);
    const NcclResult answer = current->Answer(NcclCall::kInit, rank);
    if (answer != NcclResult::kSuccess) {
      *comm = nullptr;
      return answer;
    }
    const bool known = std::all_of(std::begin(id.internal), std::end(id.internal),
                                   [](char byte) { return byte == current->last_id_; });
    current->misuses_ += known && config->blocking == 0 && config->magic == 0xcafebeef ? 0 : 1;
    current->comms_.push_back(std::make_unique<Comm>());
    Comm* const made = current->comms_.back().get();
    made->all = current;
    made->id = id.internal[0];
    made->ranks = ranks;
    made->rank = rank;
    made->looks = current->delay_;
    *comm = reinterpret_cast<NcclComm*>(made);
    return made->looks == 0 ? NcclResult::kSuccess : NcclResult::kInProgress;
  }
  static NcclResult AsyncError(NcclComm* comm, NcclResult* error) {
    MutexLock lock(&current->mutex_);
    Comm* const one = Of(comm);
    current->misuses_ += one->aborted ? 1 : 0;
    *error = one->looks != 0 ? NcclResult::kInProgress : one->state;
    one->looks -= one->looks > 0 ? 1 : 0;
    return current->Answer(NcclCall::kAsyncError, one->rank);
  }
  static NcclResult Abort(NcclComm* comm) {
    MutexLock lock(&current->mutex_);
    Comm* const one = Of(comm);
    current->misuses_ += one->aborted ? 1 : 0;
    one->aborted = true;
    ++current->in_abort_;
    while (current->holds_aborts_) {
      current->released_.Wait(&current->mutex_);
    }
    --current->in_abort_;
    current->released_.NotifyAll();
    return current->Answer(NcclCall::kAbort, one->rank);
  }
  static NcclResult AllGather(const void* send, void* receive, size_t count, cuda::NcclDataType,
                              NcclComm* comm, cuda::Stream stream) {
    return Operate(NcclCall::kAllGather, comm, stream, {send, receive, count, std::nullopt});
  }
  static NcclResult Broadcast(const void* send, void* receive, size_t count, cuda::NcclDataType,
                              int root, NcclComm* comm, cuda::Stream stream) {
    return Operate(NcclCall::kBroadcast, comm, stream, {send, receive, count, root});
  }
  static NcclResult Operate(NcclCall call, NcclComm* comm, cuda::Stream stream, const Part& part) {
    std::function<bool()> work;
    NcclResult answer;
    {
      MutexLock lock(&current->mutex_);
      Comm* const one = Of(comm);
      answer = current->Answer(call, one->rank);
      if (answer != NcclResult::kSuccess) {
        return answer;
      }
      if (in_group) {
        grouped.comm = one;
        grouped.stream = stream;
        grouped.parts.push_back(part);
        return NcclResult::kSuccess;
      }
      answer = current->Begin(one, {part}, &work);
    }
    Put(stream, std::move(work));
    return answer;
  }
  static void Put(cuda::Stream stream, std::function<bool()> work) {
    if (work != nullptr) {
      current->put_(stream, std::move(work));
    }
  }
  static NcclResult GroupStart() {
    MutexLock lock(&current->mutex_);
    const NcclResult answer = current->Answer(NcclCall::kGroupStart, std::nullopt);
    if (answer == NcclResult::kSuccess) {
      current->misuses_ += in_group ? 1 : 0;
      in_group = true;
      grouped = {};
    }
    return answer;
  }
  static NcclResult GroupEnd() {
    std::function<bool()> work;
    NcclResult answer;
    {
      MutexLock lock(&current->mutex_);
      current->misuses_ += in_group ? 0 : 1;
      in_group = false;
      answer = current->Answer(NcclCall::kGroupEnd, std::nullopt);
      if (answer != NcclResult::kSuccess || grouped.comm == nullptr) {
        return answer;
      }
      answer = current->Begin(grouped.comm, std::move(grouped.parts), &work);
    }
    Put(grouped.stream, std::move(work));
    return answer;
  }
};
thread_local StandInCalls::Grouped StandInCalls::grouped;

StandInNccl::StandInNccl() : StandInNccl(PutOnHost) {}

StandInNccl::StandInNccl(PutFn put) : put_(put) {
  STRATA_CHECK(current == nullptr);
  current = this;
}

StandInNccl::~StandInNccl() {
  ReleaseAborts();
  {
    MutexLock lock(&mutex_);
    while (in_abort_ > 0) {
      released_.Wait(&mutex_);
    }
  }
  current = nullptr;
}

const cuda::NcclCalls& StandInNccl::calls() {
  static constexpr cuda::NcclCalls kCalls = {
      .get_version = StandInCalls::GetVersion,
      .get_error_string = StandInCalls::GetErrorString,
      .get_last_error = StandInCalls::GetLastError,
      .get_unique_id = StandInCalls::GetUniqueId,
      .comm_init_rank_config = StandInCalls::Init,
      .comm_get_async_error = StandInCalls::AsyncError,
      .comm_abort = StandInCalls::Abort,
      .all_gather = StandInCalls::AllGather,
      .broadcast = StandInCalls::Broadcast,
      .group_start = StandInCalls::GroupStart,
      .group_end = StandInCalls::GroupEnd,
  };
  return kCalls;
}

void StandInNccl::set_version(int version) {
  MutexLock lock(&mutex_);
  version_ = version;
}

void StandInNccl::Fail(NcclCall call, NcclResult result, std::optional<int> rank) {
  MutexLock lock(&mutex_);
  failing_[{call, rank}] = result;
}

void StandInNccl::Delay(int looks) {
  MutexLock lock(&mutex_);
  delay_ = looks;
}

void StandInNccl::FailLater(int rank, NcclResult result) {
  MutexLock lock(&mutex_);
  for (const auto& comm : comms_) {
    if (comm->rank == rank) {
      comm->state = result;
    }
  }
}

void StandInNccl::HoldStreams() {
  MutexLock lock(&mutex_);
  holds_streams_ = true;
}

void StandInNccl::HoldAborts() {
  MutexLock lock(&mutex_);
  holds_aborts_ = true;
}

void StandInNccl::ReleaseAborts() {
  MutexLock lock(&mutex_);
  holds_aborts_ = false;
  released_.NotifyAll();
}

uint64_t StandInNccl::count(NcclCall call) const {
  MutexLock lock(&mutex_);
  const auto at = counts_.find(call);
  return at == counts_.end() ? 0 : at->second;
}

int StandInNccl::live() const {
  MutexLock lock(&mutex_);
  return static_cast<int>(
      std::count_if(comms_.begin(), comms_.end(), [](const auto& comm) { return !comm->aborted; }));
}

int StandInNccl::misuses() const {
  MutexLock lock(&mutex_);
  return misuses_;
}

NcclResult StandInNccl::Answer(NcclCall call, std::optional<int> rank) {
  ++counts_[call];
  for (const std::optional<int> of : {rank, std::optional<int>()}) {
    if (const auto at = failing_.find({call, of}); at != failing_.end()) {
      return at->second;
    }
  }
  return NcclResult::kSuccess;
}

bool StandInNccl::MayBegin(const Comm& comm) {
  const bool may = !comm.aborted && comm.looks == 0;
  misuses_ += may ? 0 : 1;
  return may;
}

NcclResult StandInNccl::Begin(Comm* comm, std::vector<Part> parts, std::function<bool()>* work) {
  if (!MayBegin(*comm)) {
    return NcclResult::kInvalidUsage;
  }
  comm->looks = delay_;
  *work = [this, comm, operation = ++comm->operations, parts = std::move(parts)] {
    return Do(comm, operation, parts);
  };
  return comm->looks == 0 ? NcclResult::kSuccess : NcclResult::kInProgress;
}

bool StandInNccl::Do(Comm* comm, uint64_t operation, const std::vector<Part>& parts) {
  MutexLock lock(&mutex_);
  if (comm->aborted) {
    return true;
  }
  if (holds_streams_) {
    return false;
  }
  Meeting& meeting = meetings_[{comm->id, operation}];
  meeting.parts[comm->rank] = parts;
  if (static_cast<int>(meeting.parts.size()) < comm->ranks) {
    return false;
  }
  if (!std::exchange(meeting.copied[comm->rank], true)) {
    Copy(meeting, comm->rank);
  }
  // What is sent stays until all have it.
  return static_cast<int>(meeting.copied.size()) == comm->ranks;
}

void StandInNccl::Copy(const Meeting& meeting, int rank) {
  const std::vector<Part>& own = meeting.parts.at(rank);
  for (const auto& [other, theirs] : meeting.parts) {
    bool same = theirs.size() == own.size();
    for (size_t i = 0; same && i < own.size(); ++i) {
      same = theirs[i].count == own[i].count && theirs[i].root == own[i].root;
    }
    misuses_ += same ? 0 : 1;
    for (size_t i = 0; same && i < own.size(); ++i) {
      auto* to = static_cast<uint8_t*>(own[i].receive);
      to += own[i].root ? 0 : own[i].count * other;
      if (own[i].root.value_or(other) == other && to != theirs[i].send) {
        std::memcpy(to, theirs[i].send, own[i].count);
      }
    }
  }
}

}  // namespace strata::testing
