// Case mappings that make several characters of one.
#ifndef STRATA_TEXT_UNICODE_SPECIAL_CASING_H_
#define STRATA_TEXT_UNICODE_SPECIAL_CASING_H_

#include <cstddef>

namespace strata::python {

struct SpecialCasing {
  char32_t code;
  const char8_t* upper;
  const char8_t* title;  // "" where the title case is one character.
};

extern const SpecialCasing kSpecialCasing[];  // Ascending by code.
extern const size_t kSpecialCasingCount;

}  // namespace strata::python

#endif  // STRATA_TEXT_UNICODE_SPECIAL_CASING_H_
