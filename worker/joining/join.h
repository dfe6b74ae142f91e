// strata-worker join TOKEN: a machine becomes part of a cluster.
#ifndef STRATA_WORKER_JOINING_JOIN_H_
#define STRATA_WORKER_JOINING_JOIN_H_

#include <functional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "common/app/flags.h"
#include "strata/v1/joining.pb.h"

namespace strata {

struct JoinOptions {
  std::string token;
  std::string name;                // The node's.
  std::vector<std::string> hosts;  // By which others dial it.
  std::string config_dir;          // Gets worker.toml and worker-tls.
  // Whether the local network is asked for the coordinator, instead of the token; what is asked and
  // who answers is told to `say` then.
  bool discover = false;
  std::function<void(const std::string&)> say{};
};

struct Joined {
  std::string cluster;
  std::string coordinator;  // host:port.
  std::string config;       // The file.
  std::string tls_dir;
};

// Gets a certificate from a coordinator, which has to be of the token's authority, for the key in
// config_dir/worker-tls, or a new one; writes both, and config_dir/worker.toml with `coordinator`,
// `name` and `tls-dir`. Nothing is written before the certificate is there. INVALID_ARGUMENT
// (BAD_TOKEN), what AskToJoin and AskToJoinDiscovered say, INTERNAL (FILE_FAILED).
absl::StatusOr<Joined> JoinCluster(const JoinOptions& options);

// argv[0] is "join". The exit status.
int JoinMain(int argc, const char* const* argv, const GetEnvFn& get_env);

}  // namespace strata

#endif  // STRATA_WORKER_JOINING_JOIN_H_
