// NCCL's calls without NCCL, between threads of this process on HostDevices or emulated ones: each
// can fail, what they begin can be in progress for a while or for ever, and what is put on streams
// can hang.
#ifndef STRATA_TESTS_WORKER_BACKEND_CUDA_NCCL_STAND_IN_NCCL_H_
#define STRATA_TESTS_WORKER_BACKEND_CUDA_NCCL_STAND_IN_NCCL_H_

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "common/mutex.h"
#include "worker/backend/cuda/nccl/nccl_calls.h"

namespace strata::testing {

enum class NcclCall {
  kGetVersion,
  kGetUniqueId,
  kInit,
  kAsyncError,
  kAbort,
  kAllGather,
  kBroadcast,
  kGroupStart,
  kGroupEnd,
};

// One at a time in a process, which its calls find it by. Any thread.
class StandInNccl {
 public:
  static constexpr int kForEver = -1;
  // Puts on a device's stream what says whether it is done, and is asked again until it is.
  using PutFn = void (*)(cuda::Stream stream, std::function<bool()> work);

  // On the streams of HostDevices.
  StandInNccl();
  explicit StandInNccl(PutFn put);
  // Waits for calls that hang.
  ~StandInNccl();
  static const cuda::NcclCalls& calls();

  void set_version(int version);
  // The call, of this rank or of any, answers so from now on.
  void Fail(NcclCall call, cuda::NcclResult result, std::optional<int> rank = std::nullopt);
  // What any call begins is in progress for so many looks.
  void Delay(int looks);
  // What went wrong behind a rank's back.
  void FailLater(int rank, cuda::NcclResult result);
  // Nothing that is put on streams is ever done, until its communicator is aborted.
  void HoldStreams();
  // Aborts do not return before ReleaseAborts.
  void HoldAborts();
  void ReleaseAborts();

  uint64_t count(NcclCall call) const;
  // Communicators that were made and not aborted.
  int live() const;
  // Calls that NCCL does not allow: of a communicator that is aborted or still in progress,
  // blocking ones, or other operations than the other ranks'.
  int misuses() const;

 private:
  friend struct StandInCalls;
  struct Part {
    const void* send;
    void* receive;
    size_t count;
    std::optional<int> root;  // None: gathered from all.
  };
  struct Comm {
    StandInNccl* all = nullptr;
    char id = 0;  // Of the ranks that belong together.
    int ranks = 0;
    int rank = 0;
    int looks = 0;
    bool aborted = false;
    cuda::NcclResult state = cuda::NcclResult::kSuccess;
    uint64_t operations = 0;
  };
  // An operation of all ranks.
  struct Meeting {
    std::map<int, std::vector<Part>> parts;  // By rank.
    std::map<int, bool> copied;
  };

  // How a call of the rank goes; counted.
  cuda::NcclResult Answer(NcclCall call, std::optional<int> rank) STRATA_REQUIRES(mutex_);
  // Whether the rank may begin something with its communicator.
  bool MayBegin(const Comm& comm) STRATA_REQUIRES(mutex_);
  // `work` is what is to be put on the stream then.
  cuda::NcclResult Begin(Comm* comm, std::vector<Part> parts, std::function<bool()>* work)
      STRATA_REQUIRES(mutex_);
  bool Do(Comm* comm, uint64_t operation, const std::vector<Part>& parts);
  void Copy(const Meeting& meeting, int rank) STRATA_REQUIRES(mutex_);

  const PutFn put_;
  mutable Mutex mutex_;  // Not held while anything is put on a stream.
  CondVar released_;
  int version_ STRATA_GUARDED_BY(mutex_) = cuda::kNcclHeaderVersion;
  int delay_ STRATA_GUARDED_BY(mutex_) = 0;
  bool holds_streams_ STRATA_GUARDED_BY(mutex_) = false;
  bool holds_aborts_ STRATA_GUARDED_BY(mutex_) = false;
  int in_abort_ STRATA_GUARDED_BY(mutex_) = 0;
  char last_id_ STRATA_GUARDED_BY(mutex_) = 0;
  int misuses_ STRATA_GUARDED_BY(mutex_) = 0;
  std::map<std::pair<NcclCall, std::optional<int>>, cuda::NcclResult> failing_
      STRATA_GUARDED_BY(mutex_);
  std::map<NcclCall, uint64_t> counts_ STRATA_GUARDED_BY(mutex_);
  std::vector<std::unique_ptr<Comm>> comms_ STRATA_GUARDED_BY(mutex_);
  std::map<std::pair<char, uint64_t>, Meeting> meetings_ STRATA_GUARDED_BY(mutex_);
};

}  // namespace strata::testing

#endif  // STRATA_TESTS_WORKER_BACKEND_CUDA_NCCL_STAND_IN_NCCL_H_
