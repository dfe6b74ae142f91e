#include "worker/service/layer_keeper.h"

#include <algorithm>

#include "common/app/log.h"
#include "common/status.h"
#include "common/units.h"

namespace strata {
namespace {

absl::Status Ended() {
  return Error(absl::StatusCode::kCancelled, "CANCELLED", "keeping the layer was cancelled");
}

}  // namespace

LayerKeeper::LayerKeeper(Parts parts) : parts_(std::move(parts)) {
  thread_ = std::thread([this] { Loop(); });
}

LayerKeeper::~LayerKeeper() {
  End();
  {
    MutexLock lock(&mutex_);
    stopping_ = true;
    changed_.NotifyAll();
  }
  thread_.join();
}

void LayerKeeper::OnKeep(const v1::KeepLayer& message, std::shared_ptr<Outbox> out) {
  auto job = std::make_shared<Job>();
  job->message = message;
  job->out = std::move(out);
  {
    MutexLock lock(&mutex_);
    if (waiting_.size() < kMostWaiting) {
      waiting_.push_back(std::move(job));
      changed_.NotifyAll();
      return;
    }
  }
  Answer(*job,
         Error(absl::StatusCode::kResourceExhausted, "TOO_MANY_CALLS",
               "more layers are to be kept than may wait")
             .Limit("layers_waiting=" + std::to_string(kMostWaiting)),
         0);
}

void LayerKeeper::OnDrop(const v1::DropLayers& message) {
  const auto dropped = [&](uint64_t deployment, uint32_t layer) {
    return deployment == message.deployment() &&
           (message.layers().empty() ||
            std::count(message.layers().begin(), message.layers().end(), layer) > 0);
  };
  MutexLock lock(&mutex_);
  std::erase_if(kept_, [&](auto& entry) {
    const bool gone = dropped(entry.first.first, entry.first.second);
    if (gone) going_.insert(going_.end(), entry.second.made.begin(), entry.second.made.end());
    return gone;
  });
  std::erase_if(waiting_, [&](const std::shared_ptr<Job>& job) {
    return dropped(job->message.deployment(), job->message.load().first_layer());
  });
  if (job_ != nullptr && dropped(job_->message.deployment(), job_->message.load().first_layer())) {
    interrupted_ = Ended();
    job_->dropped = true;
    job_->cancel.Cancel();
  }
  changed_.NotifyAll();
}

void LayerKeeper::Interrupt(const absl::Status& why) {
  MutexLock lock(&mutex_);
  if (job_ != nullptr && interrupted_.ok()) {
    interrupted_ = why;
    job_->cancel.Cancel();
  }
}

void LayerKeeper::End() {
  MutexLock lock(&mutex_);
  waiting_.clear();
  kept_.clear();
  if (job_ != nullptr) {
    interrupted_ = Ended();
    job_->cancel.Cancel();
  }
}

uint64_t LayerKeeper::bytes() const {
  MutexLock lock(&mutex_);
  return BytesBeside({0, 0});
}

uint64_t LayerKeeper::BytesBeside(const Place& place) const {
  uint64_t bytes = 0;
  for (const auto& [other, kept] : kept_) {
    bytes += other == place ? 0 : kept.bytes;
  }
  return bytes;
}

void LayerKeeper::Answer(const Job& job, const absl::StatusOr<uint64_t>& bytes,
                         uint64_t fetched_bytes) const {
  v1::WorkerMessage message;
  v1::LayerKept* kept = message.mutable_layer_kept();
  kept->set_deployment(job.message.deployment());
  kept->set_layer(job.message.load().first_layer());
  kept->set_fetched_bytes(fetched_bytes);
  if (bytes.ok()) {
    kept->set_bytes(*bytes);
  } else {
    *kept->mutable_error() = DetailOf(bytes.status());
    kept->mutable_error()->set_node(parts_.node);
  }
  job.out->Send(std::move(message));
}

std::optional<LayerKeeper::Kept> LayerKeeper::Pin(const v1::Load& load) const {
  const std::optional<KeptLayer> layer = parts_.context.layers->Find(KeyOfLayer(load));
  const std::optional<Blob> rotary = parts_.context.cache->Find(load.rotary_sha256());
  if (!layer.has_value() || !rotary.has_value()) {
    return std::nullopt;
  }
  std::vector<Blob> blobs = layer->packed;
  blobs.insert(blobs.end(), layer->blobs.begin(), layer->blobs.end());
  Kept kept;
  for (const Blob& blob : blobs) {
    kept.bytes += blob.bytes;
  }
  blobs.push_back(*rotary);
  kept.pin =
      std::make_unique<CachePin>(parts_.context.cache, std::move(blobs), CachePin::Kind::kSoft);
  return kept;
}

absl::Status LayerKeeper::CheckRoom(const v1::Load& load) const {
  ASSIGN_OR_RETURN(const StageRequest request, CheckLoad(load, *parts_.context.backend));
  uint64_t beside = 0;
  {
    MutexLock lock(&mutex_);
    beside = BytesBeside({0, 0});
  }
  if (parts_.limit_bytes != 0 && beside + request.weight_bytes > parts_.limit_bytes) {
    return Error(absl::StatusCode::kResourceExhausted, "STANDBY_LIMIT",
                 "layer " + std::to_string(load.first_layer()) + " takes " +
                     FormatSize(request.weight_bytes) + " beside the " + FormatSize(beside) +
                     " that are kept for other nodes' layers")
        .Limit("standby_bytes=" + std::to_string(parts_.limit_bytes))
        .Hint("raise --standby-limit of this worker");
  }
  uint64_t needs = request.weight_bytes;
  for (const BlobTensor& tensor : request.tensors) {
    needs += parts_.context.cache->Find(tensor.blob.sha256).has_value() ? 0 : tensor.blob.bytes;
  }
  const std::optional<uint64_t> free_bytes = parts_.disk_free_bytes();
  if (free_bytes.has_value() && *free_bytes < needs + parts_.disk_reserve_bytes) {
    return Error(absl::StatusCode::kResourceExhausted, "DISK_FULL",
                 "layer " + std::to_string(load.first_layer()) + " takes " + FormatSize(needs) +
                     " of the disk of --data-dir, where " + FormatSize(*free_bytes) +
                     " are free, and " + FormatSize(parts_.disk_reserve_bytes) +
                     " are left for loads")
        .Limit("disk_free_bytes=" + std::to_string(*free_bytes))
        .Hint("free space there, move --data-dir, or lower --standby-reserve of this worker");
  }
  return absl::OkStatus();
}

absl::StatusOr<LayerKeeper::Kept> LayerKeeper::Run(Job* job, LoadCounters* counters) {
  const v1::Load& load = job->message.load();
  if (!parts_.context.keep_packed) {
    return Error(absl::StatusCode::kFailedPrecondition, "PACKED_CACHE_OFF",
                 "this worker keeps no packed weights")
        .Hint("start it with --packed-cache on");
  }
  if (load.first_layer() != load.last_layer()) {
    return Error(absl::StatusCode::kInvalidArgument, "BAD_LOAD",
                 "the coordinator's KeepLayer has more than one layer");
  }
  if (std::optional<Kept> kept = Pin(load); kept.has_value()) {
    return *std::move(kept);
  }
  RETURN_IF_ERROR(CheckRoom(load));
  absl::Status why;
  {
    ASSIGN_OR_RETURN(const LoadedStage stage,
                     LoadStage(load, parts_.context, counters, &job->cancel));
    why = stage.packed_status;
  }
  if (std::optional<Kept> kept = Pin(load); kept.has_value()) {
    return *std::move(kept);
  }
  return !why.ok() ? why
                   : Error(absl::StatusCode::kUnavailable, "LAYER_NOT_KEPT",
                           "the packed weights did not stay in the cache")
                         .Hint("it is tried again; --cache-limit of this worker may be too low");
}

void LayerKeeper::Loop() {
  while (true) {
    std::vector<Blob> going;
    std::shared_ptr<Job> job;
    {
      MutexLock lock(&mutex_);
      while (waiting_.empty() && going_.empty() && !stopping_) {
        changed_.Wait(&mutex_);
      }
      if (stopping_) {
        return;
      }
      going.swap(going_);
    }
    if (!going.empty()) {
      parts_.context.cache->DeletePacked(going);
      continue;
    }
    {
      MutexLock lock(&mutex_);
      if (waiting_.empty()) {
        continue;  // It was dropped.
      }
      job = std::move(waiting_.front());
      waiting_.pop_front();
      job_ = job;
      interrupted_ = absl::OkStatus();
    }
    LoadCounters counters;
    absl::StatusOr<Kept> kept = Run(job.get(), &counters);
    if (parts_.context.reserve_host_memory != nullptr) {
      parts_.context.reserve_host_memory(0);
    }
    parts_.context.reserve_memory(0);
    absl::StatusOr<uint64_t> bytes = 0;
    bool dropped = false;
    {
      MutexLock lock(&mutex_);
      job_ = nullptr;
      dropped = job->dropped;
      if (dropped) {
        going_.insert(going_.end(), counters.packed_made.begin(), counters.packed_made.end());
      }
      if (!interrupted_.ok()) {
        bytes = interrupted_;
      } else if (!kept.ok()) {
        bytes = kept.status();
      } else {
        bytes = kept->bytes;
        kept->made = std::move(counters.packed_made);
        kept_[{job->message.deployment(), job->message.load().first_layer()}] = *std::move(kept);
      }
    }
    if (dropped) {
      continue;
    }
    if (!bytes.ok()) {
      LogWarn(
          {{"deployment", job->message.deployment()}, {"layer", job->message.load().first_layer()}},
          "a layer is not kept for another node: " + Describe(bytes.status()));
    }
    Answer(*job, bytes, counters.fetch.fetched_bytes);
  }
}

}  // namespace strata
