// What `strata doctor` and `strata support-bundle` share.
#ifndef STRATA_CLI_DIAGNOSIS_H_
#define STRATA_CLI_DIAGNOSIS_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "cli/command.h"
#include "cli/output.h"
#include "common/doctor/findings.h"
#include "strata/v1/diagnosis.pb.h"

namespace strata::cli {

// Has the coordinator look at everything, and says on stderr what it does meanwhile.
absl::StatusOr<v1::ClusterFacts> AskForFacts(const Context& context,
                                             const v1::DiagnoseRequest& request);

// {"findings": [...], "nodes", "links", "not_looked_at": [...]}
Json FindingsDocument(const std::vector<doctor::Finding>& findings, const v1::ClusterFacts& facts);
void PrintFindings(const std::vector<doctor::Finding>& findings, std::ostream* out);

// "/etc/strata/worker.toml", ... of this machine, to be looked at here: those given, else all. An
// error where there are none, or where this user sees less than the services do.
absl::StatusOr<std::vector<std::string>> ConfigsToLookAt(const Context& context,
                                                         const std::string& given);

}  // namespace strata::cli

#endif  // STRATA_CLI_DIAGNOSIS_H_
