#include "worker/weights/blob_fetcher.h"

#include <algorithm>
#include <map>
#include <thread>
#include <utility>

#include "common/status.h"

namespace strata {
namespace {

absl::Status Cancelled() {
  return Error(absl::StatusCode::kCancelled, "CANCELLED", "fetching weights was cancelled");
}

// Whether another try may help.
bool IsTransient(const absl::Status& status) {
  return absl::IsUnavailable(status) || absl::IsDeadlineExceeded(status) ||
         absl::IsCancelled(status) || absl::IsUnknown(status) || absl::IsInternal(status) ||
         absl::IsAborted(status) || ReasonOf(status) == "TOO_MANY_CALLS";
}

}  // namespace

std::shared_ptr<const HeldBlob> BlobSet::Find(const std::string& sha256) const {
  const auto it = blobs_.find(sha256);
  return it == blobs_.end() ? nullptr : it->second;
}

// One call's shared state.
struct BlobFetcher::Job {
  std::vector<Blob> blobs;  // Each digest once, largest first.
  BlobClient* client = nullptr;
  FetchProgress* progress = nullptr;
  Cancellation* cancel = nullptr;
  const std::function<void(const std::string&)>* log = nullptr;
  Cancellation stop;  // Of all threads of the job, after the first error.

  Mutex mutex;
  size_t next STRATA_GUARDED_BY(mutex) = 0;
  absl::Status status STRATA_GUARDED_BY(mutex);

  void Log(const std::string& line) {
    MutexLock lock(&mutex);
    (*log)(line);
  }
};

absl::StatusOr<std::shared_ptr<const BlobSet>> BlobFetcher::Fetch(
    const std::vector<Blob>& blobs, BlobClient* client, FetchProgress* progress,
    Cancellation* cancel, const std::function<void(const std::string&)>& log) {
  Job job;
  std::map<std::string, uint64_t> sizes;
  for (const Blob& blob : blobs) {
    const auto [it, is_new] = sizes.emplace(blob.sha256, blob.bytes);
    if (!is_new && it->second != blob.bytes) {
      return Error(absl::StatusCode::kInvalidArgument, "BAD_DIGEST",
                   "blob " + blob.sha256 + " is named with two sizes");
    }
    if (is_new) {
      job.blobs.push_back(blob);
      progress->total_bytes += blob.bytes;
    }
  }
  std::stable_sort(job.blobs.begin(), job.blobs.end(),
                   [](const Blob& a, const Blob& b) { return a.bytes > b.bytes; });
  job.client = client;
  job.progress = progress;
  job.cancel = cancel;
  job.log = &log;
  auto set = std::make_shared<BlobSet>();
  for (const Blob& blob : job.blobs) {
    set->blobs_[blob.sha256] = std::make_shared<const HeldBlob>(cache_, blob);
  }
  RETURN_IF_ERROR(cache_->MakeRoom());
  {
    const Cancellation::Waker forward(cancel, [&job] { job.stop.Cancel(); });
    std::vector<std::thread> threads;
    const size_t count =
        std::min<size_t>(job.blobs.size(), static_cast<size_t>(std::max(1, options_.parallel)));
    for (size_t i = 0; i < count; ++i) {
      threads.emplace_back([this, &job] { Work(&job); });
    }
    for (std::thread& thread : threads) {
      thread.join();
    }
  }
  MutexLock lock(&job.mutex);
  if (cancel->cancelled()) {
    return Cancelled();
  }
  RETURN_IF_ERROR(job.status);
  return std::shared_ptr<const BlobSet>(std::move(set));
}

std::optional<uint64_t> BlobFetcher::OnItsWay(const std::string& sha256) const {
  MutexLock lock(&mutex_);
  const auto it = busy_.find(sha256);
  return it == busy_.end() ? std::nullopt : std::optional<uint64_t>(it->second);
}

void BlobFetcher::Work(Job* job) {
  while (true) {
    size_t index = 0;
    {
      MutexLock lock(&job->mutex);
      if (job->next == job->blobs.size() || !job->status.ok()) {
        return;
      }
      index = job->next++;
    }
    const Blob& blob = job->blobs[index];
    const absl::Status status = FetchOne(job, blob);
    MutexLock lock(&job->mutex);
    if (!status.ok() && job->status.ok()) {
      job->status = status;
      job->stop.Cancel();
    }
  }
}

absl::Status BlobFetcher::FetchOne(Job* job, const Blob& blob) {
  {
    MutexLock lock(&mutex_);
    while (busy_.count(blob.sha256) > 0) {
      if (job->stop.cancelled()) {
        return Cancelled();
      }
      changed_.WaitFor(&mutex_, std::chrono::milliseconds(50));
    }
    busy_[blob.sha256] = 0;
  }
  absl::Status status = cache_->Map(blob).status();  // Which verifies it.
  if (status.ok()) {
    job->progress->done_bytes += blob.bytes;
  } else if (absl::IsNotFound(status) || absl::IsDataLoss(status)) {
    if (absl::IsDataLoss(status)) {
      job->Log("cached weights are spoilt and are fetched again: " + Describe(status));
    }
    status = Transfer(job, blob);
    if (status.ok()) {
      status = cache_->Map(blob).status();
    }
  }
  MutexLock lock(&mutex_);
  busy_.erase(blob.sha256);
  changed_.NotifyAll();
  return status;
}

absl::Status BlobFetcher::Transfer(Job* job, const Blob& blob) {
  int idle_tries = 0;
  int bad_tries = 0;
  auto backoff = options_.first_backoff;
  uint64_t counted = 0;  // Of done_bytes, this blob's.
  while (true) {
    if (job->stop.cancelled()) {
      return Cancelled();
    }
    uint64_t brought = 0;
    const absl::Status status = Try(job, blob, &brought, &counted);
    if (status.ok() || job->stop.cancelled()) {
      return job->stop.cancelled() ? Cancelled() : status;
    }
    if (absl::IsDataLoss(status)) {
      job->progress->done_bytes -= counted;
      counted = 0;
      // Who gave them is not asked again; or a partial file was spoilt on disk: once more from the
      // start.
      if (!job->client->OnBad(blob.sha256) && ++bad_tries > 1) {
        return status;
      }
    } else if (!IsTransient(status) || ReasonOf(status) == "CACHE_IO") {
      return status;
    }
    if (brought > 0) {
      idle_tries = 0;
      backoff = options_.first_backoff;
    } else if (++idle_tries >= options_.max_idle_tries) {
      return Annotate(status, "fetching weights");
    }
    job->Log("fetching weights goes on after: " + Describe(status));
    if (job->stop.WaitFor(backoff)) {
      return Cancelled();
    }
    backoff = std::min(backoff * 2, options_.max_backoff);
  }
}

absl::Status BlobFetcher::Try(Job* job, const Blob& blob, uint64_t* brought, uint64_t* counted) {
  ASSIGN_OR_RETURN(const std::unique_ptr<BlobWriter> writer, cache_->Write(blob));
  std::atomic<uint64_t>* there = nullptr;
  {
    MutexLock lock(&mutex_);
    there = &busy_.at(blob.sha256);
  }
  const auto count = [&] {
    job->progress->done_bytes += writer->offset() - *counted;
    *counted = writer->offset();
    *there = writer->offset();
  };
  count();
  if (writer->offset() < blob.bytes) {
    absl::Status local;  // The sink's own error, which is final whatever the client makes of it.
    const absl::Status status = job->client->Fetch(
        blob.sha256, writer->offset(),
        [&](std::string_view chunk) {
          fetched_bytes_ += chunk.size();
          job->progress->fetched_bytes += chunk.size();
          *brought += chunk.size();
          local = writer->Append(chunk);
          count();
          return local;
        },
        &job->stop);
    RETURN_IF_ERROR(local);
    if (!status.ok() && writer->offset() < blob.bytes) {
      return status;
    }
    if (writer->offset() < blob.bytes) {
      job->client->OnBad(blob.sha256);
      return Error(absl::StatusCode::kUnavailable, "BLOB_TOO_SHORT",
                   "the transfer of blob " + blob.sha256 + " ended early");
    }
  }
  return writer->Commit();
}

}  // namespace strata
