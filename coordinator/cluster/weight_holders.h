// Which nodes have which weights in their caches: what they said of them, and what they are being
// sent. Digests are the first 64 bits of a SHA-256 (DigestPrefix): a hint, which the whole digest
// checks where bytes arrive.
#ifndef STRATA_COORDINATOR_CLUSTER_WEIGHT_HOLDERS_H_
#define STRATA_COORDINATOR_CLUSTER_WEIGHT_HOLDERS_H_

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <unordered_set>
#include <utility>
#include <vector>

#include "common/mutex.h"
#include "strata/v1/membership.pb.h"

namespace strata {

// Any thread.
class WeightHolders {
 public:
  // Of blobs, and of layers, that are remembered of a node; more are not.
  static constexpr size_t kMostOfNode = 65'536;
  // Sources that one answer names.
  static constexpr size_t kMostNamed = 3;

  // A node is a member, in this life; nothing is known of its cache yet.
  void OnJoined(const std::string& node, uint64_t incarnation, const std::string& address);
  void OnLost(const std::string& node);
  // What it says of its cache, in its present life.
  void OnContents(const std::string& node, const v1::CacheContents& contents);

  // Who wants a blob.
  struct Ask {
    std::string node;
    uint64_t incarnation = 0;
    uint64_t blob = 0;
    bool may_name = true;                 // Sources; else it is sent.
    std::vector<std::string> not_from{};  // Nodes that are not to be named.
  };

  // A blob on its way from the coordinator to a node, or not: where there are `sources`, it is to
  // be asked for there. These have it, the one first that was named least; or one is being sent it
  // just now. Once it was sent whole, the node counts as one that has it.
  class Sending {
   public:
    Sending(WeightHolders* holders, Ask ask);
    ~Sending();
    Sending(const Sending&) = delete;
    Sending& operator=(const Sending&) = delete;
    const std::vector<v1::BlobSource>& sources() const { return sources_; }
    void SentAll() { all_ = true; }

   private:
    WeightHolders* const holders_;
    const Ask ask_;
    std::vector<v1::BlobSource> sources_;
    bool all_ = false;
  };

  bool HasBlob(const std::string& node, uint64_t blob) const;
  // Whether a load of the layer there fetches and packs nothing.
  bool HasLayer(const std::string& node, uint64_t layer) const;
  // Of these blobs, each with its bytes, what the node does not have.
  uint64_t MissingBytes(const std::string& node,
                        const std::vector<std::pair<uint64_t, uint64_t>>& blobs) const;
  // How many blobs and layers the node has.
  std::pair<uint64_t, uint64_t> CountsOf(const std::string& node) const;

  // Bytes of weights that the coordinator has sent.
  void CountSent(uint64_t bytes) { sent_bytes_ += bytes; }
  uint64_t sent_bytes() const { return sent_bytes_; }

 private:
  struct Holder {
    uint64_t incarnation = 0;
    std::string address;
    std::unordered_set<uint64_t> blobs;
    std::unordered_set<uint64_t> layers;
    std::map<uint64_t, uint32_t> coming;  // How many sends of a blob are under way.
    uint64_t named = 0;                   // How often, as a source.
  };

  Holder* Find(const std::string& node, uint64_t incarnation) STRATA_REQUIRES(mutex_);
  std::vector<v1::BlobSource> Sources(const Ask& ask) STRATA_REQUIRES(mutex_);

  std::atomic<uint64_t> sent_bytes_{0};
  mutable Mutex mutex_;
  std::map<std::string, Holder> holders_ STRATA_GUARDED_BY(mutex_);
};

}  // namespace strata

#endif  // STRATA_COORDINATOR_CLUSTER_WEIGHT_HOLDERS_H_
