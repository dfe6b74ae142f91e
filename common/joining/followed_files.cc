#include "common/joining/followed_files.h"

#include <cstdint>

#include "common/app/log.h"
#include "common/status.h"

namespace strata {

void FollowTlsFiles(const std::string& data_dir, TransportSecurity* security) {
  security->follow_files = true;
  security->tls.renewed_dir = data_dir + "/tls";
  security->tls.on_taken = [](const TlsFiles& taken) {
    LogInfo({{"folder", taken.dir}, {"expires_at", static_cast<uint64_t>(taken.term.not_after_s)}},
            "connections use a new certificate from now on");
  };
  security->tls.on_refused = [](const absl::Status& why) {
    LogWarn({}, "new files of --tls-dir are not used, those before are: " + Describe(why));
  };
}

}  // namespace strata
