#ifndef STRATA_WORKER_RANKS_SOCKETS_RANK_WIRE_H_
#define STRATA_WORKER_RANKS_SOCKETS_RANK_WIRE_H_

namespace strata {

// What goes over the connections of a stage's ranks: as it is, or by TLS whose key is the epoch's
// secret (rank_tls.h). The same at both ends.
enum class RankWire { kPlain, kTls };

}  // namespace strata

#endif  // STRATA_WORKER_RANKS_SOCKETS_RANK_WIRE_H_
