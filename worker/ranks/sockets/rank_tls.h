// A connection between ranks that nobody else reads or changes.
#ifndef STRATA_WORKER_RANKS_SOCKETS_RANK_TLS_H_
#define STRATA_WORKER_RANKS_SOCKETS_RANK_TLS_H_

#include <memory>

#include "absl/status/statusor.h"
#include "common/certificates/openssl_owned.h"
#include "worker/collective/rank_channel.h"
#include "worker/ranks/rank_hello.h"

namespace strata {

// TLS 1.3 over another channel, by a key that both ends have: the secret of the ranks' epoch
// (RFC 8446, 2.2). It takes no certificate; how the secret came to them is what they trust. What is
// sent and does not go out at once has to be sent again, unchanged, before anything else is.
class RankTls : public RankChannel {
 public:
  enum class Side { kDials, kIsDialled };
  RankTls(std::unique_ptr<RankChannel> inner, const RankSecret& secret, Side side);
  ~RankTls() override;

  // Goes on with the handshake, and never waits: whether it is over. UNAUTHENTICATED
  // (kRankHelloRefused): the other end has another secret, or is no rank. What is sent before it is
  // over is not taken, and nothing is received.
  absl::StatusOr<bool> Handshake();

  absl::StatusOr<size_t> Send(std::span<const uint8_t> bytes) override;
  absl::StatusOr<size_t> Receive(std::span<uint8_t> out) override;
  void EndSending() override;

 private:
  // 0 where `rc` says that nothing moved now.
  absl::StatusOr<size_t> Moved(int rc, size_t moved);

  const std::unique_ptr<RankChannel> inner_;
  RankSecret secret_;
  const openssl::Owned<SSL> ssl_;
};

}  // namespace strata

#endif  // STRATA_WORKER_RANKS_SOCKETS_RANK_TLS_H_
