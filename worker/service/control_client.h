// The worker's control stream to the coordinator: registers, keeps the lease, hands on what the
// coordinator says, and begins anew whenever it ends.
#ifndef STRATA_WORKER_SERVICE_CONTROL_CLIENT_H_
#define STRATA_WORKER_SERVICE_CONTROL_CLIENT_H_

#include <memory>
#include <string>

#include "absl/status/status.h"
#include "common/rpc/io_loop.h"
#include "common/rpc/transport.h"
#include "worker/service/worker_node.h"

namespace strata {

class ControlClient {
 public:
  // `coordinator` is its host:port. `loop`, on which the stream runs, and `node` outlive the
  // client.
  ControlClient(IoLoop* loop, const Transport& transport, std::string coordinator,
                WorkerNode* node);
  ~ControlClient();
  ControlClient(const ControlClient&) = delete;
  ControlClient& operator=(const ControlClient&) = delete;

  // Runs until Stop, then ok. Returns an error only when the very first registration was refused
  // for a reason that waiting does not mend: the name is taken, the advertised address does not
  // lead here, ....
  absl::Status Run();

  // Whether it belongs to the cluster now, and in words: what it joined, or why it has not. Any
  // thread.
  struct Standing {
    bool joined = false;
    std::string what;
  };
  Standing standing() const;

  // Any thread; these do not wait. Beat: sends a heartbeat at once, if registered.
  void Beat();
  void Stop();

 private:
  class Impl;
  const std::unique_ptr<Impl> impl_;
};

}  // namespace strata

#endif  // STRATA_WORKER_SERVICE_CONTROL_CLIENT_H_
