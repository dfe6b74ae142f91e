// What avahi-browse writes of what anybody on the network says. Whatever is taken can be dialled,
// is shown without anything that a terminal obeys, and is bounded.
#include <cstdint>
#include <string>
#include <string_view>

#include "common/check.h"
#include "common/discovery/found_coordinators.h"
#include "common/printable.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using strata::FoundCoordinator;
  const std::string_view said(reinterpret_cast<const char*>(data), size);
  const auto found = strata::ReadFoundCoordinators(said);
  STRATA_CHECK(found.size() <= strata::kMaxFoundCoordinators);
  size_t of_first = 0;
  for (const FoundCoordinator& one : found) {
    STRATA_CHECK(one.port != 0 && one.join_port != 0);
    STRATA_CHECK(one.authority_sha256.size() == 64);
    STRATA_CHECK(one.address.find_first_not_of("0123456789abcdefABCDEF.:") == std::string::npos);
    of_first += one.authority_sha256 == found.front().authority_sha256 ? 1 : 0;
  }
  if (!found.empty()) {
    const std::string& first = found.front().authority_sha256;
    STRATA_CHECK(strata::CoordinatorsOf(found, first).size() == of_first);
    std::string text = strata::DescribeFound(found, first);
    std::erase(text, '\n');
    STRATA_CHECK(strata::IsPrintable(text));
  }
  return 0;
}
