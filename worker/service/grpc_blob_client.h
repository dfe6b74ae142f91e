#ifndef STRATA_WORKER_SERVICE_GRPC_BLOB_CLIENT_H_
#define STRATA_WORKER_SERVICE_GRPC_BLOB_CLIENT_H_

#include <memory>
#include <string>

#include "common/rpc/transport.h"
#include "worker/weights/blob_fetcher.h"

namespace strata {

// Reads blobs from the coordinator, on a connection of its own, so that weights do not hold up
// heartbeats. Any thread.
class GrpcBlobClient : public BlobClient {
 public:
  GrpcBlobClient(const Transport& transport, const std::string& coordinator);
  ~GrpcBlobClient() override;
  // One call lasts a minute at most; what is missing then is asked for again.
  absl::Status Fetch(const std::string& sha256, uint64_t offset, const ChunkFn& sink,
                     Cancellation* cancel) override;

 private:
  class Impl;
  const std::unique_ptr<Impl> impl_;
};

}  // namespace strata

#endif  // STRATA_WORKER_SERVICE_GRPC_BLOB_CLIENT_H_
