#include "worker/backend/cuda/nccl/nccl_library.h"

#include <dlfcn.h>

#include "absl/strings/str_cat.h"
#include "common/status.h"
#include "worker/collective/collective.h"

namespace strata::cuda {
namespace {

absl::Status Absent(const std::string& why) {
  return Error(absl::StatusCode::kUnimplemented, kNcclAbsent,
               absl::StrCat("several GPUs cannot compute a stage together: ", why))
      .Hint(absl::StrCat("install NCCL 2.28 or newer where the loader finds ", kNcclLibrary,
                         ", or give each GPU a worker of its own"));
}

// As NCCL_VERSION makes it since 2.9.
std::string VersionText(int version) {
  return absl::StrCat(version / 10'000, ".", version / 100 % 100, ".", version % 100);
}

std::string TextOf(const char* text) { return text == nullptr ? "" : text; }

class Symbols {
 public:
  Symbols(void* library, const std::string& name) : library_(library), name_(name) {}

  template <typename Function>
  void Find(const char* symbol, Function* out) {
    void* const found = dlsym(library_, symbol);
    if (found == nullptr && status_.ok()) {
      status_ = Absent(absl::StrCat(name_, " has no ", symbol));
    }
    *out = reinterpret_cast<Function>(found);
  }
  const absl::Status& status() const { return status_; }

 private:
  void* const library_;
  const std::string name_;
  absl::Status status_;
};

}  // namespace

absl::StatusOr<NcclCalls> OpenNccl(const std::string& library) {
  void* const opened = dlopen(library.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (opened == nullptr) {
    return Absent(absl::StrCat("NCCL is not there: ", TextOf(dlerror())));
  }
  Symbols symbols(opened, library);
  NcclCalls calls;
  symbols.Find("ncclGetVersion", &calls.get_version);
  symbols.Find("ncclGetErrorString", &calls.get_error_string);
  symbols.Find("ncclGetLastError", &calls.get_last_error);
  symbols.Find("ncclGetUniqueId", &calls.get_unique_id);
  symbols.Find("ncclCommInitRankConfig", &calls.comm_init_rank_config);
  symbols.Find("ncclCommGetAsyncError", &calls.comm_get_async_error);
  symbols.Find("ncclCommAbort", &calls.comm_abort);
  symbols.Find("ncclAllGather", &calls.all_gather);
  symbols.Find("ncclBroadcast", &calls.broadcast);
  symbols.Find("ncclGroupStart", &calls.group_start);
  symbols.Find("ncclGroupEnd", &calls.group_end);
  RETURN_IF_ERROR(symbols.status());
  return calls;
}

absl::Status CheckNcclVersion(const NcclCalls& calls) {
  int version = 0;
  if (const NcclResult result = calls.get_version(&version); result != NcclResult::kSuccess) {
    return NcclError(calls, nullptr, "ncclGetVersion", result);
  }
  if (version < kNcclOldestVersion) {
    return Error(absl::StatusCode::kUnimplemented, kNcclTooOld,
                 absl::StrCat("NCCL is ", VersionText(version), ", and ranks on GPUs need ",
                              VersionText(kNcclOldestVersion), " or newer"))
        .Limit(absl::StrCat("oldest=", VersionText(kNcclOldestVersion)))
        .Hint(absl::StrCat("install a newer NCCL where the loader finds ", kNcclLibrary));
  }
  return absl::OkStatus();
}

absl::Status NcclError(const NcclCalls& calls, NcclComm* comm, const std::string& call,
                       NcclResult result) {
  std::string what = absl::StrCat(call, " failed: ", TextOf(calls.get_error_string(result)));
  if (const std::string last = TextOf(calls.get_last_error(comm)); !last.empty()) {
    absl::StrAppend(&what, " (", last, ")");
  }
  if (result == NcclResult::kRemoteError) {
    return Error(absl::StatusCode::kAborted, kCollectiveAborted,
                 absl::StrCat("another rank is gone: ", what));
  }
  return Error(absl::StatusCode::kInternal, kNcclFailed, what)
      .Fact("nccl_result", static_cast<uint64_t>(result))
      .Hint("start the worker with NCCL_DEBUG=WARN in its environment: NCCL then says more");
}

}  // namespace strata::cuda
