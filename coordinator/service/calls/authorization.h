// What a gRPC call says of who calls.
#ifndef STRATA_COORDINATOR_SERVICE_CALLS_AUTHORIZATION_H_
#define STRATA_COORDINATOR_SERVICE_CALLS_AUTHORIZATION_H_

#include <grpcpp/server_context.h>

#include <string_view>

namespace strata {

// The metadata `authorization`, while `context` lives; "" if there is none.
inline std::string_view AuthorizationOf(const grpc::ServerContext& context) {
  const auto& metadata = context.client_metadata();
  const auto found = metadata.find("authorization");
  return found == metadata.end() ? std::string_view()
                                 : std::string_view(found->second.data(), found->second.size());
}

}  // namespace strata

#endif  // STRATA_COORDINATOR_SERVICE_CALLS_AUTHORIZATION_H_
