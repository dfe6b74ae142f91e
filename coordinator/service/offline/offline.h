// strata-coordinator tokenize|detokenize|template PATH: what the coordinator would make of a text,
// without any cluster.
#ifndef STRATA_COORDINATOR_SERVICE_OFFLINE_OFFLINE_H_
#define STRATA_COORDINATOR_SERVICE_OFFLINE_OFFLINE_H_

namespace strata {

// `argv[0]` is the command's name. The process's exit status.
int OfflineMain(int argc, char** argv);

}  // namespace strata

#endif  // STRATA_COORDINATOR_SERVICE_OFFLINE_OFFLINE_H_
