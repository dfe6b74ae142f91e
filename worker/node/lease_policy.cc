#include "worker/node/lease_policy.h"

namespace strata::lease_policy {

bool HasLapsed(TimePoint now, TimePoint end) { return now >= end; }

bool EndsLife(Coordinator answers, nanoseconds answers_since, nanoseconds lease) {
  switch (answers) {
    case Coordinator::kNobody:
      return false;
    case Coordinator::kSame:
      return answers_since >= lease;
    case Coordinator::kAnother:
      break;
  }
  return true;
}

}  // namespace strata::lease_policy
