// A coordinator that offers a prefix to others as soon as the step that writes it is sent.
#define PublishesWhenSent GuardedPublishesWhenSent
#include "coordinator/engine/ledger_policy.cc"
#undef PublishesWhenSent

namespace strata::ledger_policy {

bool PublishesWhenSent() { return true; }

}  // namespace strata::ledger_policy
