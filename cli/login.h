// What `strata login` keeps: who the user is, and which coordinator is asked.
#ifndef STRATA_CLI_LOGIN_H_
#define STRATA_CLI_LOGIN_H_

#include <string>

#include "absl/status/status.h"
#include "common/certificates/tls_folder.h"

namespace strata::cli {

// Writes `dir`/tls and `dir`/coordinator, which Context reads. Errors as WriteTlsFolder.
absl::Status WriteLogin(const std::string& dir, const TlsFolder& folder,
                        const std::string& address);

}  // namespace strata::cli

#endif  // STRATA_CLI_LOGIN_H_
