#include "worker/service/cache_teller.h"

#include <algorithm>
#include <iterator>
#include <string>
#include <utility>

#include "common/layer_weights.h"

namespace strata {
namespace {

using SteadyClock = std::chrono::steady_clock;

// Looking takes at most one part in so many of the time.
constexpr int kShare = 20;

std::set<uint64_t> PrefixesOf(const std::vector<std::string>& digests) {
  std::set<uint64_t> prefixes;
  for (const std::string& digest : digests) {
    if (prefixes.size() == CacheTeller::kMostTold) break;
    prefixes.insert(DigestPrefix(digest));
  }
  return prefixes;
}

std::vector<uint64_t> Minus(const std::set<uint64_t>& a, const std::set<uint64_t>& b) {
  std::vector<uint64_t> rest;
  std::set_difference(a.begin(), a.end(), b.begin(), b.end(), std::back_inserter(rest));
  return rest;
}

// Fills messages with digests, each into a list that `list` gives.
class Messages {
 public:
  explicit Messages(bool anew) {
    if (anew) Add()->set_anew(true);
  }

  void Put(const std::vector<uint64_t>& digests,
           google::protobuf::RepeatedField<uint64_t>* (v1::CacheContents::*list)()) {
    for (const uint64_t digest : digests) {
      if (out_.empty() || filled_ == CacheTeller::kMostInMessage) Add();
      (out_.back().mutable_cache_contents()->*list)()->Add(digest);
      ++filled_;
    }
  }

  std::vector<v1::WorkerMessage> Take() { return std::move(out_); }

 private:
  v1::CacheContents* Add() {
    filled_ = 0;
    return out_.emplace_back().mutable_cache_contents();
  }

  std::vector<v1::WorkerMessage> out_;
  size_t filled_ = 0;  // Of the last one.
};

}  // namespace

std::vector<v1::WorkerMessage> CacheTeller::Changes(uint64_t incarnation) {
  const bool anew = incarnation != told_incarnation_;
  const uint64_t cache_changes = cache_->changes();
  const uint64_t layer_changes = layers_->changes();
  const auto begin = SteadyClock::now();
  if (!anew && ((cache_changes == cache_changes_ && layer_changes == layer_changes_) ||
                begin < not_before_)) {
    return {};
  }
  cache_changes_ = cache_changes;
  layer_changes_ = layer_changes;
  if (anew) {
    told_incarnation_ = incarnation;
    blobs_.clear();
    told_layers_.clear();
  }
  std::set<uint64_t> blobs = PrefixesOf(cache_->Blobs());
  std::set<uint64_t> layers = PrefixesOf(layers_->Keys());
  Messages messages(anew);
  messages.Put(Minus(blobs_, blobs), &v1::CacheContents::mutable_gone_blobs);
  messages.Put(Minus(told_layers_, layers), &v1::CacheContents::mutable_gone_layers);
  messages.Put(Minus(blobs, blobs_), &v1::CacheContents::mutable_blobs);
  messages.Put(Minus(layers, told_layers_), &v1::CacheContents::mutable_layers);
  blobs_ = std::move(blobs);
  told_layers_ = std::move(layers);
  const auto end = SteadyClock::now();
  not_before_ = end + kShare * (end - begin);
  return messages.Take();
}

}  // namespace strata
