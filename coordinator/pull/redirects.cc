#include "coordinator/pull/redirects.h"

#include "common/status.h"

namespace strata {
namespace {

// One hop: keeps a redirect to itself, hands anything else on.
class Hop : public HttpReceiver {
 public:
  Hop(HopReceiver& receiver, bool own) : receiver_(receiver), own_(own) {}

  absl::Status OnResponse(const HttpResponse& response) override {
    const int status = response.status;
    const bool moves =
        status == 301 || status == 302 || status == 303 || status == 307 || status == 308;
    if (moves && !response.Header("location").empty()) {
      location_ = response.Header("location");
      receiver_.OnRedirect(response, own_);
      return absl::OkStatus();
    }
    return receiver_.OnResponse(response, own_);
  }
  absl::Status OnBody(std::string_view bytes) override {
    return location_.empty() ? receiver_.OnBody(bytes) : absl::OkStatus();
  }
  bool Cancelled() override { return receiver_.Cancelled(); }

  const std::string& location() const { return location_; }

 private:
  HopReceiver& receiver_;
  const bool own_;
  std::string location_;
};

}  // namespace

absl::Status RedirectFollower::Get(std::string url, HopReceiver& receiver) const {
  for (int hops = 0; hops <= max_redirects_; ++hops) {
    ASSIGN_OR_RETURN(const Origin origin, OriginOf(url));
    const bool own = origin == endpoint_;
    HttpHeaders headers = receiver.RequestHeaders();
    if (own && !token_.empty()) {
      headers.emplace_back("Authorization", "Bearer " + token_);
    }
    Hop hop(receiver, own);
    RETURN_IF_ERROR(transport_.Get(url, headers, hop));
    if (hop.location().empty()) {
      return absl::OkStatus();
    }
    ASSIGN_OR_RETURN(std::string next, ResolveReference(url, hop.location()));
    ASSIGN_OR_RETURN(const Origin next_origin, OriginOf(next));
    if (origin.scheme == "https" && next_origin.scheme != "https") {
      return Error(absl::StatusCode::kFailedPrecondition, "INSECURE_REDIRECT",
                   "a redirect from https to http is refused: " + WithoutQuery(next));
    }
    url = std::move(next);
  }
  return Error(absl::StatusCode::kFailedPrecondition, "TOO_MANY_REDIRECTS",
               "the server redirects without end")
      .Limit("max_redirects=" + std::to_string(max_redirects_));
}

}  // namespace strata
