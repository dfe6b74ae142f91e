// A body once more, with the keys of its objects in their order; read only where something needs
// it.
#ifndef STRATA_COORDINATOR_HTTP_ORDERED_BODY_H_
#define STRATA_COORDINATOR_HTTP_ORDERED_BODY_H_

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "common/status.h"
#include "coordinator/http/json_body.h"
#include "text/tools/json_text.h"
#include "text/tools/ordered_json.h"

namespace strata {

// One thread.
class OrderedBody {
 public:
  // `body` outlives it. Of its members these alone are kept, all where there are none.
  OrderedBody(std::string_view body, std::vector<std::string> members)
      : body_(body), members_(std::move(members)) {}

  // BAD_JSON as ParseOrderedJson.
  absl::StatusOr<const OrderedJson*> Get() {
    if (!json_.has_value()) {
      json_ = ParseOrderedJson(body_, "the body", members_);
    }
    RETURN_IF_ERROR(json_->status());
    return &**json_;
  }
  // The member as it is written, with every digit of its numbers; "": there is none. Errors are
  // Get's.
  absl::StatusOr<std::string_view> Written(std::string_view member) {
    RETURN_IF_ERROR(Get().status());
    return MemberText(body_, member);
  }

 private:
  const std::string_view body_;
  const std::vector<std::string> members_;
  std::optional<absl::StatusOr<OrderedJson>> json_;
};

}  // namespace strata

#endif  // STRATA_COORDINATOR_HTTP_ORDERED_BODY_H_
