// The ways in which a test writes one value of JSON.
#ifndef STRATA_TESTS_TEXT_GRAMMAR_JSON_WRITINGS_H_
#define STRATA_TESTS_TEXT_GRAMMAR_JSON_WRITINGS_H_

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace strata::testing {

struct Blanks {
  std::string_view comma = ",";
  std::string_view colon = ":";
  std::string_view inner;  // Behind an opening bracket and before a closing one.
};

// `json` (well-formed, without blanks) with the members of all objects in every order, and each of
// its numbers and strings as it is there; `max` texts at most.
std::vector<std::string> EveryOrder(std::string_view json, const Blanks& blanks, size_t max);

}  // namespace strata::testing

#endif  // STRATA_TESTS_TEXT_GRAMMAR_JSON_WRITINGS_H_
