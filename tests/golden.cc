#include "tests/golden.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <sstream>

namespace strata::testing {

std::string SourcePath(const std::string& relative) {
  const char* source = std::getenv("STRATA_SOURCE");
  return std::string(source != nullptr ? source : ".") + "/" + relative;
}

std::string GoldenPath(const std::string& relative) {
  return SourcePath("tests/golden/" + relative);
}

std::string ReadFileOrFail(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  if (!in) {
    ADD_FAILURE() << "cannot read " << path;
    return "";
  }
  std::ostringstream all;
  all << in.rdbuf();
  return all.str();
}

std::vector<std::string> ReadLinesOrFail(const std::string& path) {
  std::istringstream in(ReadFileOrFail(path));
  std::vector<std::string> lines;
  for (std::string line; std::getline(in, line);) {
    if (!line.empty()) {
      lines.push_back(line);
    }
  }
  return lines;
}

}  // namespace strata::testing
