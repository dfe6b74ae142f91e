#include "cli/output.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <ostream>
#include <utility>

#include "common/check.h"
#include "common/printable.h"
#include "common/units.h"

namespace strata::cli {
namespace {

// A longer one is cut: what is said at length stands below tables.
constexpr size_t kMaxCellBytes = 512;

// Terminal columns, nearly: code points.
size_t Width(const std::string& text) {
  return static_cast<size_t>(std::count_if(text.begin(), text.end(), [](char c) {
    return (static_cast<unsigned char>(c) & 0xC0) != 0x80;
  }));
}

void Write(const Json& value, std::ostream& out) {
  if (value.is_object()) {
    out << '{';
    bool first = true;
    for (const auto& [key, member] : value.items()) {
      out << (first ? "" : ",") << Json(key).dump() << ':';
      Write(member, out);
      first = false;
    }
    out << '}';
  } else if (value.is_array()) {
    out << '[';
    bool first = true;
    for (const Json& element : value) {
      out << (first ? "" : ",");
      Write(element, out);
      first = false;
    }
    out << ']';
  } else if (value.is_number_float()) {
    // The library would print a widened float32 with a double's digits.
    out << FormatFloat(static_cast<float>(value.get<double>()));
  } else {
    out << value.dump(-1, ' ', /*ensure_ascii=*/false, Json::error_handler_t::replace);
  }
}

}  // namespace

void WriteJson(const Json& document, std::ostream* out) {
  Write(document, *out);
  *out << std::endl;
}

Table::Table(const std::vector<std::string>& titles) {
  std::vector<std::string> row;
  for (const std::string& title : titles) {
    const bool right = title.front() == '>';
    right_.push_back(right);
    row.push_back(right ? title.substr(1) : title);
  }
  rows_.push_back(std::move(row));
}

void Table::AddRow(std::vector<std::string> cells) {
  STRATA_CHECK(cells.size() == right_.size());
  for (std::string& cell : cells) {
    cell = Printable(cell, kMaxCellBytes);
  }
  rows_.push_back(std::move(cells));
}

void Table::Print(std::ostream* out, const std::string& indent) const {
  std::vector<size_t> widths(right_.size(), 0);
  for (const auto& row : rows_) {
    for (size_t i = 0; i < row.size(); ++i) {
      widths[i] = std::max(widths[i], Width(row[i]));
    }
  }
  for (const auto& row : rows_) {
    std::string line = indent;
    for (size_t i = 0; i < row.size(); ++i) {
      const std::string padding(widths[i] - Width(row[i]), ' ');
      line += (i == 0 ? "" : "  ") + (right_[i] ? padding + row[i] : row[i] + padding);
    }
    line.erase(line.find_last_not_of(' ') + 1);
    *out << line << '\n';
  }
}

std::string Rounded(double value) {
  if (!std::isfinite(value)) {
    return "-";
  }
  const double size = std::abs(value);
  const int digits = size >= 100 || size == 0 ? 0 : size >= 10 ? 1 : size >= 1 ? 2 : 3;
  char text[64];
  std::snprintf(text, sizeof(text), "%.*f", digits, value);
  return text;
}

std::string Counted(uint64_t n, const std::string& what) {
  return std::to_string(n) + " " + what + (n == 1 ? "" : "s");
}

}  // namespace strata::cli
