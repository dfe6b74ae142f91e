#include "common/platform/processor_name.h"

#include <fstream>
#include <string_view>

namespace strata {

std::string ProcessorNameIn(std::istream* cpuinfo) {
  constexpr std::string_view kKey = "model name";
  constexpr size_t kMostBytes = 64;
  std::string line;
  while (std::getline(*cpuinfo, line)) {
    const size_t colon = line.find(':');
    if (!line.starts_with(kKey) || colon == std::string::npos) {
      continue;
    }
    const size_t begin = line.find_first_not_of(" \t", colon + 1);
    std::string name = begin == std::string::npos ? "" : line.substr(begin, kMostBytes);
    name.resize(name.find_last_not_of(" \t\r") + 1);
    return name;
  }
  return "";
}

const std::string& ProcessorName() {
  static const std::string kName = [] {
    std::ifstream cpuinfo("/proc/cpuinfo");
    return ProcessorNameIn(&cpuinfo);
  }();
  return kName;
}

}  // namespace strata
