// For targets that parse hostile messages: protobuf says on stderr what it refuses.
#ifndef STRATA_TESTS_FUZZ_QUIET_PROTOBUF_H_
#define STRATA_TESTS_FUZZ_QUIET_PROTOBUF_H_

#include <google/protobuf/stubs/logging.h>

namespace strata::fuzz {

inline const bool kProtobufIsQuiet = [] {
  google::protobuf::SetLogHandler(nullptr);
  return true;
}();

}  // namespace strata::fuzz

#endif  // STRATA_TESTS_FUZZ_QUIET_PROTOBUF_H_
