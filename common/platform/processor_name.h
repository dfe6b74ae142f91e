#ifndef STRATA_COMMON_PLATFORM_PROCESSOR_NAME_H_
#define STRATA_COMMON_PLATFORM_PROCESSOR_NAME_H_

#include <istream>
#include <string>

namespace strata {

// What the machine's processor is called, as Linux has it in /proc/cpuinfo; "" where nothing says.
// Read once; any thread.
const std::string& ProcessorName();

// The same of a file of that kind: at most 64 bytes of it.
std::string ProcessorNameIn(std::istream* cpuinfo);

}  // namespace strata

#endif  // STRATA_COMMON_PLATFORM_PROCESSOR_NAME_H_
