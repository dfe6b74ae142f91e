// One member dials another as it would for steps, and looks at the way there.
#ifndef STRATA_COMMON_RPC_PEER_DIAL_H_
#define STRATA_COMMON_RPC_PEER_DIAL_H_

#include <chrono>
#include <cstdint>
#include <functional>
#include <string>

#include "common/rpc/transport.h"
#include "strata/v1/diagnosis.pb.h"

namespace strata {

struct PeerToDial {
  std::string node;          // "": the coordinator.
  uint64_t incarnation = 0;  // 0: not checked.
  std::string address;
};

// Whether it is reached there and is who it should be; the least round trip, the most bytes a
// second, and how many segments of small messages had to be sent again. An error has as its reason,
// or its fact `cause`, what was found below gRPC (connection_probe.h), or WRONG_NODE. `from` is who
// dials. Takes two times `timeout` at most where nothing is heard, and up to five times where the
// way is slow; ends early once `cancelled` says so. Any thread.
v1::LinkFacts DialPeer(const Transport& transport, const std::string& from, const PeerToDial& peer,
                       std::chrono::milliseconds timeout,
                       const std::function<bool()>& cancelled = nullptr);

}  // namespace strata

#endif  // STRATA_COMMON_RPC_PEER_DIAL_H_
