#include "cli/renew_own.h"

#include <chrono>
#include <ctime>
#include <filesystem>
#include <ostream>
#include <system_error>

#include "common/certificates/authority.h"
#include "common/certificates/renewal.h"
#include "common/joining/certificate_keeper.h"
#include "common/rpc/tls_files.h"
#include "common/rpc/transport.h"
#include "common/status.h"

namespace strata::cli {
namespace {

namespace fs = std::filesystem;

constexpr std::chrono::hours kAskEvery{1};

// When the folder was last asked about is the time of its last change.
bool AskedLately(const std::string& tls_dir) {
  std::error_code error;
  const auto asked = fs::last_write_time(tls_dir, error);
  return !error && fs::file_time_type::clock::now() - asked < kAskEvery;
}

absl::Status AskAndRenew(const TlsFiles& files, const std::string& address, int64_t now_s) {
  ASSIGN_OR_RETURN(Transport transport, Transport::Make({.tls_dir = files.dir}));
  const auto source = CoordinatorAsSource(std::move(transport), address);
  ASSIGN_OR_RETURN(const v1::Trust trust, source->GetTrust({}));
  return WantsRenewal(files, trust, 0, now_s) ? RenewFiles(files, files.dir, source.get())
                                              : absl::OkStatus();
}

}  // namespace

void RenewOwn(const std::string& tls_dir, const std::string& address, AskWhen when,
              std::ostream* err) {
  const int64_t now_s = std::time(nullptr);
  const auto files = ReadTlsFiles(tls_dir, now_s);
  if (!files.ok() || !files->holder.has_value()) {
    return;  // Whoever connects says what is wrong.
  }
  const CertificateRole role = files->holder->role;
  const bool due = RenewalIsDue(files->term, 0, now_s);
  if ((role != CertificateRole::kOperator && role != CertificateRole::kClient) ||
      (!due && when == AskWhen::kHourly && AskedLately(tls_dir))) {
    return;
  }
  std::error_code ignored;
  fs::last_write_time(tls_dir, fs::file_time_type::clock::now(), ignored);
  const absl::Status status = AskAndRenew(*files, address, now_s);
  if (const std::string ends = EndsSoon(files->ends_first, now_s); !status.ok() && !ends.empty()) {
    *err << "strata: the certificate in " << tls_dir << " " << ends
         << ", and cannot be renewed: " << Describe(status) << "\n";
  }
}

}  // namespace strata::cli
