#include "worker/weights/sourced_blobs.h"

#include <algorithm>
#include <charconv>
#include <optional>

#include "common/status.h"

namespace strata {
namespace {

using SteadyClock = std::chrono::steady_clock;

constexpr int kRounds = 3;  // Of asking the coordinator who has a blob.
constexpr size_t kMostRemembered = 4096;

// Whoever gave what is of a blob already; no node has that name.
const std::pair<std::string, uint64_t> kUnknown{"", 0};

// How many bytes BLOB_ON_ITS_WAY says are there.
uint64_t BytesThere(const absl::Status& status) {
  const v1::ErrorDetail detail = DetailOf(status);
  uint64_t bytes = 0;
  if (const auto it = detail.facts().find("bytes"); it != detail.facts().end()) {
    std::from_chars(it->second.data(), it->second.data() + it->second.size(), bytes);
  }
  return bytes;
}

// Forgets anything where there is too much: it is only ever of help.
template <typename Container>
void Bound(Container* container) {
  if (container->size() > kMostRemembered) container->erase(container->begin());
}

}  // namespace

bool SourcedBlobs::MayAsk(const WeightSource& source) const {
  MutexLock lock(&mutex_);
  const auto resting = resting_.find(source.node);
  return !liars_.contains({source.node, source.incarnation}) &&
         (resting == resting_.end() || resting->second <= SteadyClock::now());
}

std::vector<std::string> SourcedBlobs::Resting() const {
  std::vector<std::string> nodes;
  const auto now = SteadyClock::now();
  MutexLock lock(&mutex_);
  for (const auto& [node, until] : resting_) {
    if (until > now) nodes.push_back(node);
  }
  return nodes;
}

void SourcedBlobs::Leave(const WeightSource& source, const std::string& sha256,
                         const absl::Status& why) {
  if (!absl::IsNotFound(why)) {
    log_("node '" + source.node + "' does not give blob " + sha256 + ": " + Describe(why));
  }
  if (absl::IsNotFound(why) || ReasonOf(why) == "BLOB_ON_ITS_WAY") {
    return;  // Of this blob alone.
  }
  MutexLock lock(&mutex_);
  resting_[source.node] = SteadyClock::now() + options_.rest;
  Bound(&resting_);
}

absl::Status SourcedBlobs::FromOne(const WeightSource& source, Transfer* transfer,
                                   Cancellation* cancel) {
  std::optional<uint64_t> there;  // As of `since`, of what the source is being sent.
  const auto begin = SteadyClock::now();
  auto since = begin;
  const auto gives = [&] {
    MutexLock lock(&mutex_);
    Bound(&givers_);
    givers_[transfer->sha256].insert({source.node, source.incarnation});
  };
  while (true) {
    uint64_t brought = 0;
    const ChunkFn sink = [&](std::string_view chunk) {
      if (brought == 0) {
        gives();
      }
      brought += chunk.size();
      from_workers_bytes_ += chunk.size();
      transfer->sunk = transfer->sink(chunk);
      transfer->offset += transfer->sunk.ok() ? chunk.size() : 0;
      return transfer->sunk;
    };
    const absl::Status status = sources_->FromWorker(source, transfer->sha256, transfer->offset,
                                                     options_.call_timeout, sink, cancel);
    if (status.ok()) {
      gives();  // If only the end of it.
    }
    if (status.ok() || !transfer->sunk.ok() || cancel->cancelled()) {
      return status;
    }
    if (ReasonOf(status) == "BLOB_ON_ITS_WAY") {
      const auto now = SteadyClock::now();
      const uint64_t bytes = BytesThere(status);
      if (!there.has_value() || (bytes > *there && bytes - *there >= options_.least_bytes)) {
        there = bytes;
        since = now;
      }
      if (now - since > options_.patience || now - begin > options_.longest_wait) {
        return status;
      }
      cancel->WaitFor(options_.look_again);
    } else if (!absl::IsDeadlineExceeded(status) || brought < options_.least_bytes) {
      return status;
    }
  }
}

absl::Status SourcedBlobs::Fetch(const std::string& sha256, uint64_t offset, const ChunkFn& sink,
                                 Cancellation* cancel) {
  Transfer transfer{.sha256 = sha256, .offset = offset, .sink = sink, .sunk = {}};
  std::vector<std::string> not_from;
  bool may_name = false;
  {
    MutexLock lock(&mutex_);
    may_name = !distrusted_.contains(sha256);
    if (offset == 0) {
      givers_.erase(sha256);
    } else if (!givers_.contains(sha256)) {
      Bound(&givers_);
      givers_[sha256].insert(kUnknown);
    }
  }
  for (int round = 0; round < kRounds && may_name; ++round) {
    std::vector<std::string> all = Resting();
    all.insert(all.end(), not_from.begin(), not_from.end());
    std::vector<WeightSource> sources;
    const absl::Status status =
        sources_->FromCoordinator(sha256, transfer.offset, all, &sources, sink, cancel);
    if (!status.ok() || sources.empty()) {
      return status;
    }
    for (const WeightSource& source : sources) {
      not_from.push_back(source.node);
      if (!MayAsk(source)) {
        continue;
      }
      const absl::Status given = FromOne(source, &transfer, cancel);
      if (given.ok() || cancel->cancelled()) {
        return given;
      }
      RETURN_IF_ERROR(transfer.sunk);
      Leave(source, sha256, given);
    }
  }
  return sources_->FromCoordinator(sha256, transfer.offset, {}, nullptr, sink, cancel);
}

bool SourcedBlobs::OnBad(const std::string& sha256) {
  std::set<Life> givers;
  {
    MutexLock lock(&mutex_);
    const auto it = givers_.find(sha256);
    if (it == givers_.end()) {
      return false;
    }
    givers = std::move(it->second);
    givers_.erase(it);
    if (givers == std::set<Life>{kUnknown}) {
      return false;
    }
    if (givers.size() == 1) liars_.insert(*givers.begin());
    distrusted_.insert(sha256);
    Bound(&liars_);
    Bound(&distrusted_);
  }
  ++bad_blobs_;
  if (givers.size() == 1) {
    log_("node '" + givers.begin()->first + "' gave bytes that are not those of blob " + sha256 +
         ": they are thrown away, and it is not asked again");
    return true;
  }
  std::string names;
  for (const auto& [node, incarnation] : givers) {
    names +=
        (names.empty() ? "" : ", ") + (node.empty() ? "a transfer before" : "node '" + node + "'");
  }
  log_("blob " + sha256 + ", of which some came from " + names +
       " each, has other bytes: they are thrown away, and the coordinator sends it");
  return true;
}

}  // namespace strata
