#include "cli/login.h"

#include <fstream>

#include "common/status.h"

namespace strata::cli {

absl::Status WriteLogin(const std::string& dir, const TlsFolder& folder,
                        const std::string& address) {
  RETURN_IF_ERROR(WriteTlsFolder(dir + "/tls", folder));
  std::ofstream out(dir + "/coordinator", std::ios::trunc);
  out << address << "\n";
  out.flush();
  if (!out.good()) {
    return Error(absl::StatusCode::kInternal, "FILE_FAILED", "cannot write " + dir + "/coordinator")
        .Hint("give --dir a folder that you may write to");
  }
  return absl::OkStatus();
}

}  // namespace strata::cli
