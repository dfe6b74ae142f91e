#include "worker/service/weights_service.h"

#include <algorithm>
#include <atomic>
#include <optional>
#include <string>
#include <utility>

#include "common/limits.h"
#include "common/rpc/blocking_call.h"
#include "common/rpc/call_threads.h"
#include "common/rpc/io_loop.h"
#include "common/rpc/peer_role.h"
#include "common/rpc/status.h"
#include "common/status.h"
#include "strata/v1/membership.grpc.pb.h"
#include "worker/service/expected_node.h"

namespace strata {

class WeightsService::Impl {
 public:
  Impl(const WeightsServiceOptions& options, WeightCache* cache, const BlobFetcher* fetcher,
       std::function<LinkHandler::Identity()> self)
      : cache_(cache),
        fetcher_(fetcher),
        self_(std::move(self)),
        threads_({.threads = options.sends,
                  .waiting = options.waiting,
                  .name = "weight_sends",
                  .hint = "another worker or the coordinator is asked instead"}) {}

  grpc::Service* NewService() {
    service_ = std::make_unique<AsyncService>();
    return service_.get();
  }

  void Serve(IoLoop* loop) {
    BlockingMethods(service_.get(), loop, &threads_)
        .Serve(&AsyncService::RequestFetchBlob, std::bind_front(&Impl::FetchBlob, this));
  }

  uint64_t sent_bytes() const { return sent_bytes_; }

 private:
  using AsyncService = v1::WeightsService::AsyncService;

  // All of a blob, verified.
  absl::StatusOr<std::unique_ptr<MappedBlob>> Find(const std::string& sha256) const {
    const std::optional<Blob> blob = cache_->Find(sha256);
    if (blob.has_value()) {
      return cache_->Map(*blob);
    }
    if (const std::optional<uint64_t> bytes = fetcher_->OnItsWay(sha256); bytes.has_value()) {
      return Error(absl::StatusCode::kUnavailable, "BLOB_ON_ITS_WAY",
                   "blob " + sha256 + " is on its way here")
          .Fact("bytes", std::to_string(*bytes));
    }
    return Error(absl::StatusCode::kNotFound, "BLOB_NOT_CACHED",
                 "blob " + sha256 + " is not in the cache of this worker");
  }

  grpc::Status FetchBlob(CallContext* context, const v1::FetchBlobRequest* request,
                         CallWriter<v1::FetchBlobChunk>* writer) {
    absl::Status asked = CheckPeerRole(context->grpc(), CallFor::kMembers);
    if (asked.ok()) {
      asked = CheckExpectedNode(*request, self_());
    }
    if (!asked.ok()) {
      return ToGrpc(asked);
    }
    const auto blob = Find(request->sha256());
    if (!blob.ok()) {
      return ToGrpc(blob.status());
    }
    const uint64_t bytes = (*blob)->bytes();
    if (request->offset() > bytes) {
      return ToGrpc(Error(absl::StatusCode::kOutOfRange, "BAD_OFFSET",
                          "offset " + std::to_string(request->offset()) + " in a blob of " +
                              std::to_string(bytes) + " bytes"));
    }
    v1::FetchBlobChunk chunk;
    for (uint64_t at = request->offset(); at < bytes && !context->IsCancelled();) {
      const uint64_t count = std::min<uint64_t>(kBlobChunkBytes, bytes - at);
      chunk.set_data((*blob)->data() + at, count);
      if (!writer->Write(chunk)) {
        break;  // Who asked went away.
      }
      (*blob)->Drop(at, at + count);
      at += count;
      sent_bytes_ += count;
    }
    return grpc::Status::OK;
  }

  WeightCache* const cache_;
  const BlobFetcher* const fetcher_;
  const std::function<LinkHandler::Identity()> self_;
  std::unique_ptr<AsyncService> service_;
  std::atomic<uint64_t> sent_bytes_{0};
  CallThreads threads_;  // Last: it uses the others.
};

WeightsService::WeightsService(const WeightsServiceOptions& options, WeightCache* cache,
                               const BlobFetcher* fetcher,
                               std::function<LinkHandler::Identity()> self)
    : impl_(std::make_unique<Impl>(options, cache, fetcher, std::move(self))) {}
WeightsService::~WeightsService() = default;
grpc::Service* WeightsService::NewService() { return impl_->NewService(); }
void WeightsService::Serve(IoLoop* loop) { impl_->Serve(loop); }
uint64_t WeightsService::sent_bytes() const { return impl_->sent_bytes(); }

}  // namespace strata
