#ifndef STRATA_COMMON_HEX_DIGIT_H_
#define STRATA_COMMON_HEX_DIGIT_H_

namespace strata {

// What a hexadecimal digit is worth, 0 to 15; -1: it is none.
constexpr int HexDigit(char32_t c) {
  if (c >= '0' && c <= '9') {
    return static_cast<int>(c - '0');
  }
  if (c >= 'a' && c <= 'f') {
    return static_cast<int>(c - 'a') + 10;
  }
  return c >= 'A' && c <= 'F' ? static_cast<int>(c - 'A') + 10 : -1;
}

}  // namespace strata

#endif  // STRATA_COMMON_HEX_DIGIT_H_
