// The coordinator's own certificate: which files, who renews it, and by which authority it is
// announced.
#ifndef STRATA_COORDINATOR_OWN_CERTIFICATE_H_
#define STRATA_COORDINATOR_OWN_CERTIFICATE_H_

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "common/discovery/announcer.h"
#include "common/joining/certificate_keeper.h"
#include "common/rpc/transport.h"
#include "coordinator/serve_flags.h"
#include "coordinator/service/calls/joining_desk.h"
#include "strata/v1/admin.pb.h"

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

// What --announce says of a coordinator whose services are at `address` and `join_address`, as
// bound.
Announcement AnnouncementOf(JoiningDesk* desk, const std::string& address,
                            const std::string& join_address);

// What `status` says of it.
std::vector<v1::Problem> ProblemsOf(const Announcer& announcer);

}  // namespace strata

#endif  // STRATA_COORDINATOR_OWN_CERTIFICATE_H_
