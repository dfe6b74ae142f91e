// Python's operators on values: arithmetic, comparison, truth, hashing, iteration.
#ifndef STRATA_TEXT_TEMPLATE_OPERATORS_H_
#define STRATA_TEXT_TEMPLATE_OPERATORS_H_

#include <cstdint>
#include <string_view>
#include <vector>

#include "text/template/runtime.h"
#include "text/template/value.h"

namespace strata::jinja {

enum class Operator : uint8_t {
  kAdd,
  kSubtract,
  kMultiply,
  kDivide,
  kFloorDivide,
  kModulo,
  kPower,
  kEqual,
  kNotEqual,
  kLess,
  kLessEqual,
  kGreater,
  kGreaterEqual,
  kIn,
  kNotIn,
};

bool Truth(const Value& v);
bool Equals(Runtime& runtime, const Value& a, const Value& b);
// Equality of hashable values, which takes steps for tuples only.
bool KeyEquals(Runtime& runtime, const Value& a, const Value& b);
// -1, 0, 1, or 2 where neither is less (NaN); fails for types without an order.
int Order(Runtime& runtime, const Value& a, const Value& b, std::string_view symbol = "<");
bool Contains(Runtime& runtime, const Value& container, const Value& item);
// Equal values have equal hashes. Fails for lists and dicts. Takes steps for tuples only.
size_t HashOf(Runtime& runtime, const Value& v);
size_t HashOf(std::string_view text);

Value Binary(Runtime& runtime, Operator op, const Value& a, const Value& b);
bool Compare(Runtime& runtime, Operator op, const Value& a, const Value& b);
Value Negate(Runtime& runtime, const Value& v);
Value Positive(Runtime& runtime, const Value& v);

// len(v); fails where Python does.
int64_t Length(const Value& v);

// Fails with the message of an undefined value.
[[noreturn]] void FailUndefined(const Value& v);

// What an iteration over a value yields. An iterator is used up by it.
class Items {
 public:
  Items(Runtime& runtime, const Value& v);
  size_t size() const { return size_; }
  Value operator[](size_t i) const;
  std::vector<Value> ToVector() const;

 private:
  enum class Source : uint8_t { kVector, kRange, kKeys, kValues, kPairs };
  Runtime& runtime_;
  Value owner_;
  Source source_ = Source::kVector;
  std::vector<Value> own_;
  const std::vector<Value>* vector_ = nullptr;  // Of owner_, or null for own_.
  size_t size_ = 0;
};

// A double of any number; fails for others.
double ToDouble(const Value& v);

}  // namespace strata::jinja

#endif  // STRATA_TEXT_TEMPLATE_OPERATORS_H_
