#include <algorithm>

#include "common/app/service_manager.h"
#include "common/printable.h"

namespace strata {

std::string ServiceLine(const std::string& name, const std::string& value) {
  return name + "=" + Printable(value) + "\n";
}

std::string StatusLine(const std::string& status) { return ServiceLine("STATUS", status); }

std::string StoppingLines(const std::string& status, nanoseconds longest) {
  const auto us = std::chrono::duration_cast<std::chrono::microseconds>(longest).count();
  return "STOPPING=1\n" + StatusLine(status) +
         ServiceLine("EXTEND_TIMEOUT_USEC", std::to_string(us));
}

}  // namespace strata
