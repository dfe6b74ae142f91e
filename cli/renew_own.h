// A person's certificate is renewed when it is used.
#ifndef STRATA_CLI_RENEW_OWN_H_
#define STRATA_CLI_RENEW_OWN_H_

#include <iosfwd>
#include <string>

namespace strata::cli {

// When the coordinator is asked whether the authority changes.
enum class AskWhen { kHourly, kNow };

// Renews an operator's or client's certificate in `tls_dir` by the coordinator at `address`, once
// less than a third of its time is left; and asks now and then whether the cluster's authority
// changes, which it follows. Says on `err` if that fails and the certificate ends soon. Waits for
// some seconds at most.
void RenewOwn(const std::string& tls_dir, const std::string& address, AskWhen when,
              std::ostream* err);

}  // namespace strata::cli

#endif  // STRATA_CLI_RENEW_OWN_H_
