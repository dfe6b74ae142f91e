// The files of --tls-dir while a process that serves runs.
#ifndef STRATA_COMMON_JOINING_FOLLOWED_FILES_H_
#define STRATA_COMMON_JOINING_FOLLOWED_FILES_H_

#include <string>

#include "common/rpc/transport.h"

namespace strata {

// Has transports of `security` follow the files of its --tls-dir, and those that are renewed into
// `tls` of `data_dir`; the log says when new ones are used, and why not.
void FollowTlsFiles(const std::string& data_dir, TransportSecurity* security);

}  // namespace strata

#endif  // STRATA_COMMON_JOINING_FOLLOWED_FILES_H_
