#include "tests/sim/sim_cache.h"

#include <algorithm>
#include <iterator>

#include "common/layer_weights.h"
#include "worker/weights/cache_policy.h"

namespace strata::sim {
namespace {

// Of what is as it was written; of anything else another.
constexpr uint32_t kChecksum = 1;

void Put(const std::set<uint64_t>& from, const std::set<uint64_t>& less,
         google::protobuf::RepeatedField<uint64_t>* out) {
  std::vector<uint64_t> rest;
  std::set_difference(from.begin(), from.end(), less.begin(), less.end(), std::back_inserter(rest));
  out->Add(rest.begin(), rest.end());
}

template <typename Entries>
std::set<uint64_t> PrefixesOf(const Entries& entries) {
  std::set<uint64_t> prefixes;
  for (const auto& [digest, damaged] : entries) {
    prefixes.insert(DigestPrefix(digest));
  }
  return prefixes;
}

}  // namespace

bool SimCache::Takes(const std::string& sha256, bool damaged) {
  return cache_policy::IsBlob(damaged ? "another" : sha256, sha256);
}

SimCache::Found SimCache::UseBlob(const std::string& sha256) {
  const auto it = blobs_.find(sha256);
  if (it == blobs_.end()) {
    return {};
  }
  if (!checked_.contains(sha256) && !Takes(sha256, it->second)) {
    world_->Count(Rule::kCacheDamaged);
    blobs_.erase(it);
    return {};
  }
  checked_.insert(sha256);
  return {true, it->second};
}

SimCache::Found SimCache::UsePacked(const std::string& layer) {
  const auto it = packed_.find(layer);
  if (it == packed_.end()) {
    return {};
  }
  if (!cache_policy::IsIntact(it->second ? kChecksum + 1 : kChecksum, kChecksum)) {
    world_->Count(Rule::kCacheDamaged);
    packed_.erase(it);
    return {};
  }
  return {true, it->second};
}

bool SimCache::HasRoom(const InUse& in_use) {
  if (world_->now() >= full_until_) {
    return true;
  }
  if (Evict(in_use) == 0) {
    return false;
  }
  world_->Count(Rule::kRoomMade);
  return true;
}

bool SimCache::AddBlob(const std::string& sha256, bool damaged, const InUse& in_use) {
  if (!HasRoom(in_use)) {
    return false;
  }
  blobs_[sha256] = damaged;
  checked_.insert(sha256);
  return true;
}

bool SimCache::AddPacked(const std::string& layer, bool damaged, const InUse& in_use) {
  if (!HasRoom(in_use)) {
    return false;
  }
  packed_[layer] = damaged;
  return true;
}

bool SimCache::AllRight() const {
  const auto right = [](const Entries::value_type& entry) { return !entry.second; };
  return std::all_of(blobs_.begin(), blobs_.end(), right) &&
         std::all_of(packed_.begin(), packed_.end(), right);
}

bool SimCache::HasRight(const std::vector<std::string>& layers) const {
  return std::all_of(layers.begin(), layers.end(), [this](const std::string& layer) {
    const auto it = packed_.find(layer);
    return it != packed_.end() && !it->second;
  });
}

std::vector<v1::WorkerMessage> SimCache::Changes(uint64_t incarnation) {
  v1::WorkerMessage message;
  v1::CacheContents* contents = message.mutable_cache_contents();
  if (incarnation != told_incarnation_) {
    contents->set_anew(true);
    told_incarnation_ = incarnation;
    told_blobs_.clear();
    told_layers_.clear();
  }
  const std::set<uint64_t> blobs = PrefixesOf(blobs_);
  const std::set<uint64_t> layers = PrefixesOf(packed_);
  Put(blobs, told_blobs_, contents->mutable_blobs());
  Put(told_blobs_, blobs, contents->mutable_gone_blobs());
  Put(layers, told_layers_, contents->mutable_layers());
  Put(told_layers_, layers, contents->mutable_gone_layers());
  told_blobs_ = blobs;
  told_layers_ = layers;
  if (contents->ByteSizeLong() == 0) {
    return {};
  }
  return {std::move(message)};
}

bool SimCache::Damage(uint64_t random) {
  std::vector<bool*> may;
  for (auto& [layer, damaged] : packed_) {
    may.push_back(&damaged);
  }
  for (auto& [sha256, damaged] : blobs_) {
    // What a process has checked it does not check again.
    if (!checked_.contains(sha256)) may.push_back(&damaged);
  }
  if (may.empty()) {
    return false;
  }
  *may[random % may.size()] = true;
  return true;
}

size_t SimCache::Evict(const InUse& in_use) {
  const auto evict = [&](Entries* entries) {
    return std::erase_if(*entries, [&](const auto& entry) {
      const bool gone = !in_use.contains(entry.first);
      if (gone) checked_.erase(entry.first);
      return gone;
    });
  };
  return evict(&blobs_) + evict(&packed_);
}

bool SimCache::Spoils() {
  if (to_spoil_ == 0) {
    return false;
  }
  --to_spoil_;
  return true;
}

}  // namespace strata::sim
