// What a client of a fuzz target makes of the bytes that it got.
#ifndef STRATA_TESTS_FUZZ_HTTP_ANSWERS_H_
#define STRATA_TESTS_FUZZ_HTTP_ANSWERS_H_

#include <string>
#include <string_view>
#include <vector>

namespace strata::fuzz {

// Checks that `bytes` are answers to requests of these methods ("GET", ...), in order, then perhaps
// one to what was no request. All are whole, but for the last one if `broken_off`. Bodies are the
// JSON or the events that their heads promise.
void CheckAnswers(std::string_view bytes, const std::vector<std::string>& methods, bool broken_off);

}  // namespace strata::fuzz

#endif  // STRATA_TESTS_FUZZ_HTTP_ANSWERS_H_
