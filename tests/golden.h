// Where the tests' data is, and reading it.
#ifndef STRATA_TESTS_GOLDEN_H_
#define STRATA_TESTS_GOLDEN_H_

#include <string>
#include <vector>

namespace strata::testing {

// A file or folder of tests/golden.
std::string GoldenPath(const std::string& relative);
// A file or folder of the tree.
std::string SourcePath(const std::string& relative);
// The whole file; fails the test and gives "" if it cannot be read.
std::string ReadFileOrFail(const std::string& path);
// Its lines that are not empty.
std::vector<std::string> ReadLinesOrFail(const std::string& path);

}  // namespace strata::testing

#endif  // STRATA_TESTS_GOLDEN_H_
