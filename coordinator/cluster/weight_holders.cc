#include "coordinator/cluster/weight_holders.h"

#include <algorithm>

#include "coordinator/cluster/holder_policy.h"

namespace strata {
namespace {

template <typename Digests>
void Change(const Digests& gone, const Digests& come, std::unordered_set<uint64_t>* set) {
  for (const uint64_t digest : gone) {
    if (!holder_policy::StillHas(/*gone=*/true)) set->erase(digest);
  }
  for (const uint64_t digest : come) {
    if (set->size() == WeightHolders::kMostOfNode) break;
    set->insert(digest);
  }
}

}  // namespace

WeightHolders::Holder* WeightHolders::Find(const std::string& node, uint64_t incarnation) {
  const auto it = holders_.find(node);
  return it == holders_.end() || it->second.incarnation != incarnation ? nullptr : &it->second;
}

void WeightHolders::OnJoined(const std::string& node, uint64_t incarnation,
                             const std::string& address) {
  MutexLock lock(&mutex_);
  Holder& holder = holders_[node];
  holder = Holder();
  holder.incarnation = incarnation;
  holder.address = address;
}

void WeightHolders::OnLost(const std::string& node) {
  MutexLock lock(&mutex_);
  holders_.erase(node);
}

void WeightHolders::OnContents(const std::string& node, const v1::CacheContents& contents) {
  MutexLock lock(&mutex_);
  const auto it = holders_.find(node);
  if (it == holders_.end()) {
    return;
  }
  Holder& holder = it->second;
  if (contents.anew()) {
    holder.blobs.clear();
    holder.layers.clear();
  }
  Change(contents.gone_blobs(), contents.blobs(), &holder.blobs);
  Change(contents.gone_layers(), contents.layers(), &holder.layers);
}

std::vector<v1::BlobSource> WeightHolders::Sources(const Ask& ask) {
  std::vector<std::pair<uint64_t, std::string>> have;  // How often it was named, and which.
  std::string coming;
  for (const auto& [node, holder] : holders_) {
    if (node == ask.node ||
        std::find(ask.not_from.begin(), ask.not_from.end(), node) != ask.not_from.end()) {
      continue;
    }
    if (holder.blobs.contains(ask.blob)) {
      have.emplace_back(holder.named, node);
    } else if (holder.coming.contains(ask.blob)) {
      coming = node;
    }
  }
  std::sort(have.begin(), have.end());
  if (have.size() > kMostNamed) {
    have.resize(kMostNamed);
  }
  const bool on_its_way = have.empty();
  if (on_its_way && !coming.empty()) {
    have.emplace_back(0, coming);
  }
  std::vector<v1::BlobSource> sources;
  for (const auto& [named, node] : have) {
    Holder& holder = holders_.at(node);
    v1::BlobSource& source = sources.emplace_back();
    source.set_node(node);
    source.set_incarnation(holder.incarnation);
    source.set_address(holder.address);
    source.set_on_its_way(on_its_way);
  }
  if (!have.empty()) {
    ++holders_.at(have[0].second).named;
  }
  return sources;
}

WeightHolders::Sending::Sending(WeightHolders* holders, Ask ask)
    : holders_(holders), ask_(std::move(ask)) {
  MutexLock lock(&holders_->mutex_);
  if (ask_.may_name) {
    sources_ = holders_->Sources(ask_);
  }
  Holder* holder = holders_->Find(ask_.node, ask_.incarnation);
  if (sources_.empty() && holder != nullptr) ++holder->coming[ask_.blob];
}

WeightHolders::Sending::~Sending() {
  MutexLock lock(&holders_->mutex_);
  Holder* holder = holders_->Find(ask_.node, ask_.incarnation);
  if (holder == nullptr || !sources_.empty()) {
    return;
  }
  // It may have left and joined again as it was.
  const auto it = holder->coming.find(ask_.blob);
  if (it != holder->coming.end() && --it->second == 0) {
    holder->coming.erase(it);
  }
  if (all_ && holder->blobs.size() < kMostOfNode) {
    holder->blobs.insert(ask_.blob);
  }
}

bool WeightHolders::HasBlob(const std::string& node, uint64_t blob) const {
  MutexLock lock(&mutex_);
  const auto it = holders_.find(node);
  return it != holders_.end() && it->second.blobs.contains(blob);
}

bool WeightHolders::HasLayer(const std::string& node, uint64_t layer) const {
  MutexLock lock(&mutex_);
  const auto it = holders_.find(node);
  return it != holders_.end() && it->second.layers.contains(layer);
}

uint64_t WeightHolders::MissingBytes(
    const std::string& node, const std::vector<std::pair<uint64_t, uint64_t>>& blobs) const {
  MutexLock lock(&mutex_);
  const auto it = holders_.find(node);
  uint64_t missing = 0;
  for (const auto& [blob, bytes] : blobs) {
    missing += it != holders_.end() && it->second.blobs.contains(blob) ? 0 : bytes;
  }
  return missing;
}

std::pair<uint64_t, uint64_t> WeightHolders::CountsOf(const std::string& node) const {
  MutexLock lock(&mutex_);
  const auto it = holders_.find(node);
  return it == holders_.end()
             ? std::pair<uint64_t, uint64_t>(0, 0)
             : std::pair<uint64_t, uint64_t>(it->second.blobs.size(), it->second.layers.size());
}

}  // namespace strata
