// The coordinator's own certificate: which files, and who renews it.
#ifndef STRATA_COORDINATOR_OWN_CERTIFICATE_H_
#define STRATA_COORDINATOR_OWN_CERTIFICATE_H_

#include <functional>
#include <memory>

#include "common/joining/certificate_keeper.h"
#include "common/rpc/transport.h"
#include "coordinator/serve_flags.h"
#include "coordinator/service/calls/joining_desk.h"

namespace strata {

// What --tls-dir and --insecure say, with lines of the log for what happens to certificates.
// `on_refused` is told of refused clients too.
TransportSecurity SecurityOf(const ServeFlags& f,
                             std::function<void(const absl::Status& why)> on_refused);

// Renews it by `desk`, which outlives it, while it lives. Null in plain text, and without an
// authority.
std::unique_ptr<CertificateKeeper> KeepOwnCertificate(const ServeFlags& f,
                                                      const Transport& transport,
                                                      JoiningDesk* desk);

}  // namespace strata

#endif  // STRATA_COORDINATOR_OWN_CERTIFICATE_H_
