// What differs between systems. linux_platform.cc uses /proc and cgroups; posix_platform.cc only
// what POSIX and sysconf have, and is built and tested on Linux too (STRATA_PLATFORM=posix), so
// that a port is one file.
#ifndef STRATA_COMMON_PLATFORM_PLATFORM_H_
#define STRATA_COMMON_PLATFORM_PLATFORM_H_

#include <pthread.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace strata {

// Memory that this process may still take: the smaller of what the system has available and what
// its cgroup allows. 0 when it cannot be told.
uint64_t AvailableMemoryBytes();
// What the limits of its cgroup and those around it leave, version 2; the largest number without
// any. Pages of files count as free, as the system counts its own. `root` as for QuotaCores.
uint64_t QuotaMemoryBytes(const std::string& root);
// Resident memory of this process; 0 when it cannot be told.
uint64_t ResidentMemoryBytes();
// Raises the number of files, sockets among them, that this process may have open as far as the
// system lets it, and gives it; at most 65,536.
uint64_t RaiseOpenFiles();
// Makes the process give way to others on its cores, by so many of the system's steps of niceness
// at least: the calling thread, and those that it starts from then on.
void GiveWay(int niceness);
// The calling thread alone, and those that it starts from then on, give way by so many steps more
// than it does now; it cannot be taken back. Nothing where threads have no niceness of their own.
void ThreadGivesWay(int steps);
// Names the calling thread for top and debuggers, with up to 15 characters. Nothing where threads
// have no names.
void NameThread(const std::string& name);
// Cores that the calling thread may use: its affinity and the cgroups' quota, of which a part of a
// core counts as one; at least 1. `root` as for QuotaCores.
uint32_t UsableCores(const std::string& root = "");
// Cores by the smallest quota of this process's cgroup and those around it, versions 1 and 2;
// infinity without one. Beneath the folder `root` lie proc/self/cgroup and sys/fs/cgroup.
double QuotaCores(const std::string& root);

// A core as the system schedules on it: each hyperthread is one.
struct Core {
  uint32_t number = 0;
  uint32_t physical = 0;  // The lowest number of those that share its physical core.
  uint32_t node = 0;      // Of memory.
};
struct Topology {
  std::vector<Core> cores;  // That this thread may run on, ascending. Empty: not known.
  uint32_t online = 0;      // Cores of the machine. 0: not known.
};
// By the affinity of the calling thread, whatever its cgroup's quota.
Topology UsableTopology();
// The part of it that the folder `root`, laid out as /sys/devices/system, says of these cores.
// Empty where a system has none.
Topology ReadTopology(const std::string& root, const std::vector<uint32_t>& numbers);
// From now on `thread` runs on this core alone, and so does what it starts. False: not allowed.
bool PinThread(pthread_t thread, uint32_t core);
// The pages that lie wholly in this memory are taken from, or moved to, a memory node while it has
// some free.
absl::Status PreferMemoryNode(void* data, size_t bytes, uint32_t node);

// When the system uses large pages: "always", "madvise" (where AdviseLargePages asks for them) or
// "never"; "" when it cannot be told.
std::string LargePageMode();
// Memory of this process that is in large pages now; 0 when it cannot be told.
uint64_t LargePageBytes();
// A hint that this memory is best backed by large pages. Before it is first written.
void AdviseLargePages(void* data, size_t bytes);
// A hint that the whole pages of this part of a mapped file need not stay resident: they are read
// from the file again when they are touched. Never for memory that no file is behind.
void DropResidentPages(const void* data, size_t bytes);

// The system's pages, and what AdviseLargePages asks for.
size_t PageBytes();
inline constexpr size_t kLargePageBytes = size_t{2} << 20;
// The bytes of as many of the system's pages as hold so many.
size_t RoundUpToPages(size_t bytes);
// Whole pages of the process's own, zeros, from a multiple of `alignment` on, which is one of
// PageBytes; nullptr when the system gives none. They go back by FreePages, all at once.
uint8_t* AllocatePages(size_t bytes, size_t alignment);
void FreePages(uint8_t* pages, size_t bytes);
// Of AllocatePages', from the beginning of a page on: the file's first bytes are there from now on,
// as a map of it, not to be written; behind the last of them, to the end of its page, is anything.
// UNIMPLEMENTED where that cannot be, or could not be moved later: all is as after UnmapFile.
// RESOURCE_EXHAUSTED as there.
absl::Status MapFile(int fd, uint8_t* pages, size_t bytes);
// Has this part of such a map, from the beginning of a page on, in memory: what cannot be read from
// the file is INTERNAL here, where touching it would end the process; RESOURCE_EXHAUSTED without
// memory for it.
absl::Status PopulatePages(const uint8_t* pages, size_t bytes);
// What was mapped is the process's own again, and zeros. RESOURCE_EXHAUSTED: it is not, and good
// for nothing but FreePages.
absl::Status UnmapFile(uint8_t* pages, size_t bytes);
// Whole large pages, mapped or not, become the process's own, in large pages where the system has
// some; address and bytes stay the same. Others may read them meanwhile, not write.
// RESOURCE_EXHAUSTED: all is where it was.
absl::Status MovePages(uint8_t* pages, size_t bytes);

// The file of this process's program, to be started again; `called_as` is what it was called by.
std::string OwnProgram(const std::string& called_as);
// "linux-x86_64".
std::string PlatformName();
// "" when it cannot be told.
std::string HostName();

// A data directory in use. Released with the object, or with the process.
class DirectoryLock {
 public:
  // Creates `directory` (and parents) with mode 0700 and locks DIRECTORY/lock. FAILED_PRECONDITION
  // says which process holds it.
  static absl::StatusOr<std::unique_ptr<DirectoryLock>> Acquire(const std::string& directory);
  ~DirectoryLock();
  DirectoryLock(const DirectoryLock&) = delete;
  DirectoryLock& operator=(const DirectoryLock&) = delete;

 private:
  explicit DirectoryLock(int fd) : fd_(fd) {}
  const int fd_;
};

// $XDG_DATA_HOME or ~/.local/share, then "/strata/NAME"; /var/lib/strata when systemd's
// STATE_DIRECTORY says so. `get_env` is getenv, handed in.
std::string DefaultDataDir(const std::string& name, const char* (*get_env)(const char*));

}  // namespace strata

#endif  // STRATA_COMMON_PLATFORM_PLATFORM_H_
