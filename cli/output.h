// What commands print: tables for people, documents for programs.
#ifndef STRATA_CLI_OUTPUT_H_
#define STRATA_CLI_OUTPUT_H_

#include <cstdint>
#include <iosfwd>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

namespace strata::cli {

// Keys stay in the order in which they were set. Floating-point values hold float32s.
using Json = nlohmann::ordered_json;

// One line. Floats are the shortest decimals that read back to the same float32; not finite ones
// are null.
void WriteJson(const Json& document, std::ostream* out);

// Columns as wide as their widest cell, two spaces between.
class Table {
 public:
  // A column whose title begins with '>' is aligned to the right.
  explicit Table(const std::vector<std::string>& titles);
  // As many cells as titles. What others sent is made printable, and a long cell is cut.
  void AddRow(std::vector<std::string> cells);
  bool empty() const { return rows_.size() == 1; }
  // Each line after `indent`.
  void Print(std::ostream* out, const std::string& indent = "") const;

 private:
  std::vector<bool> right_;
  std::vector<std::vector<std::string>> rows_;  // The titles first.
};

// "12.3", "0.05", for people: three significant digits, never an exponent.
std::string Rounded(double value);
// "1 token", "2 tokens".
std::string Counted(uint64_t n, const std::string& what);

}  // namespace strata::cli

#endif  // STRATA_CLI_OUTPUT_H_
