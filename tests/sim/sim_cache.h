// What a worker's disk has of weights, as worker/weights keeps it in files: blobs by digest, and
// packed weights by layer. It survives processes and lives. Whether what is damaged is found out is
// the shipped decision's affair (worker/weights/cache_policy.h).
#ifndef STRATA_TESTS_SIM_SIM_CACHE_H_
#define STRATA_TESTS_SIM_SIM_CACHE_H_

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "common/clock.h"
#include "strata/v1/membership.pb.h"
#include "tests/sim/world.h"

namespace strata::sim {

class SimCache {
 public:
  explicit SimCache(World* world) : world_(world) {}

  // What a load or another worker finds there.
  struct Found {
    bool there = false;
    bool damaged = false;  // And nobody noticed.
  };
  // A blob is checked the first time that a process uses it, packed weights each time. What is
  // found to be damaged is deleted.
  Found UseBlob(const std::string& sha256);
  Found UsePacked(const std::string& layer);
  // Whether bytes that came from elsewhere, damaged or not, are taken for this blob.
  static bool Takes(const std::string& sha256, bool damaged);

  // False: the disk is full, and nothing could be deleted for it. `in_use` is not.
  using InUse = std::set<std::string>;  // Blobs and layers.
  bool AddBlob(const std::string& sha256, bool damaged, const InUse& in_use);
  bool AddPacked(const std::string& layer, bool damaged, const InUse& in_use);
  bool HasPacked(const std::string& layer) const { return packed_.contains(layer); }
  // Packed weights of these layers are there, and right.
  bool HasRight(const std::vector<std::string>& layers) const;
  // Nothing that is there is damaged.
  bool AllRight() const;
  void DropPacked(const std::string& layer) { packed_.erase(layer); }

  // A process begins, and has checked nothing yet.
  void BeginProcess() { checked_.clear(); }
  // What the worker says of it in this life, since it said so last.
  std::vector<v1::WorkerMessage> Changes(uint64_t incarnation);

  // Faults. A bit flips on the disk; false: there is nothing to damage.
  bool Damage(uint64_t random);
  // All that is not in use makes room for others. How much that was.
  size_t Evict(const InUse& in_use);
  void Fill(TimePoint until) { full_until_ = std::max(full_until_, until); }
  // The next blob that another worker is given is damaged on its way.
  void SpoilNext() { ++to_spoil_; }
  bool Spoils();

 private:
  using Entries = std::map<std::string, bool>;  // Whether it is damaged.

  bool HasRoom(const InUse& in_use);

  World* const world_;
  Entries blobs_;
  Entries packed_;
  std::set<std::string> checked_;  // Blobs, by this process.
  TimePoint full_until_{0};
  int to_spoil_ = 0;
  uint64_t told_incarnation_ = 0;
  std::set<uint64_t> told_blobs_;
  std::set<uint64_t> told_layers_;
};

}  // namespace strata::sim

#endif  // STRATA_TESTS_SIM_SIM_CACHE_H_
