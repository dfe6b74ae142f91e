// The values of a template: Python's, with immutable containers. What holds values is of one of two
// kinds, so that nothing that recurses over values, their destruction first of all, runs out of
// stack:
// - Lists, dicts, their views, cyclers, bound methods and the like hold nothing that was made after
//   them. They count their levels (Object::depth), which have a limit.
// - Holders (namespaces, loops, macros) change after they were made. Each cycle leads through one,
//   and so does each chain that is deeper than the limit. The rendering keeps those that values
//   refer to, and empties them one by one when it is done (Runtime::Keep).
#ifndef STRATA_TEXT_TEMPLATE_VALUE_H_
#define STRATA_TEXT_TEMPLATE_VALUE_H_

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

namespace strata::jinja {

class Runtime;

enum class Kind : uint8_t {
  kUndefined,
  kNone,
  kBool,
  kInt,
  kBigInt,
  kFloat,
  kString,
  kList,
  kTuple,
  kDict,
  kDictView,
  kRange,
  kIterator,
  kNamespace,
  kFunction,
  kMethod,
  kMacro,
  kLoop,
  kCycler,
  kJoiner,
};

// Counts the bytes of all values that live; over the limit is a Failure.
class Budget {
 public:
  explicit Budget(size_t limit_bytes) : limit_bytes_(limit_bytes) {}
  void Charge(size_t bytes);
  void Release(size_t bytes) { used_bytes_ -= bytes; }
  size_t limit_bytes() const { return limit_bytes_; }
  size_t most_used_bytes() const { return most_used_bytes_; }

 private:
  const size_t limit_bytes_;
  size_t used_bytes_ = 0;
  size_t most_used_bytes_ = 0;
};

// Base of everything on the heap. `budget` is null for constants of the template.
struct Object {
  Object(Budget* budget, size_t bytes) : budget_(budget), bytes_(bytes) {
    if (budget_ != nullptr) {
      budget_->Charge(bytes_);
    }
  }
  virtual ~Object() {
    if (budget_ != nullptr) {
      budget_->Release(bytes_);
    }
  }
  Object(const Object&) = delete;
  Object& operator=(const Object&) = delete;

  // Levels of values that hold values: those below, and this one. 0 for Holders and for what holds
  // none.
  int depth = 0;

 protected:
  // Counts what it takes besides; fails over the limit.
  void Grow(size_t bytes) {
    if (budget_ != nullptr) {
      budget_->Charge(bytes);
      bytes_ += bytes;
    }
  }

 private:
  Budget* const budget_;
  size_t bytes_;
};

// What may hold values that were made after it, itself among them.
struct Holder : Object {
  using Object::Object;
  // Lets go of all that it holds; it cannot be used any more.
  virtual void Empty() = 0;
};

struct StringObject;
struct ListObject;
struct DictObject;

class Value {
 public:
  Value() : kind_(Kind::kUndefined) { number_.integer = 0; }
  Value(Kind kind, std::shared_ptr<Object> object) : kind_(kind), object_(std::move(object)) {
    number_.integer = 0;
  }
  static Value None() { return Value(Kind::kNone, nullptr); }
  static Value Bool(bool b) {
    Value v(Kind::kBool, nullptr);
    v.number_.integer = b ? 1 : 0;
    return v;
  }
  static Value Int(int64_t i) {
    Value v(Kind::kInt, nullptr);
    v.number_.integer = i;
    return v;
  }
  static Value Float(double d) {
    Value v(Kind::kFloat, nullptr);
    v.number_.real = d;
    return v;
  }
  // A string that no budget counts: of the template, or of the caller's variables.
  static Value Constant(std::string text);
  // An undefined value whose use fails with `message`.
  static Value Undefined(std::string message);

  Kind kind() const { return kind_; }
  bool Is(Kind kind) const { return kind_ == kind; }
  bool IsUndefined() const { return kind_ == Kind::kUndefined; }
  bool IsString() const { return kind_ == Kind::kString; }
  bool IsSequence() const { return kind_ == Kind::kList || kind_ == Kind::kTuple; }
  bool IsInteger() const { return kind_ == Kind::kInt || kind_ == Kind::kBool; }  // Fits int64.
  bool IsNumber() const { return kind_ >= Kind::kBool && kind_ <= Kind::kFloat; }
  int64_t integer() const { return number_.integer; }  // kInt and kBool.
  double real() const { return number_.real; }         // kFloat.
  bool boolean() const { return number_.integer != 0; }
  Object* object() const { return object_.get(); }
  template <typename T>
  T& As() const {
    return *static_cast<T*>(object_.get());
  }
  const std::string& text() const;          // kString.
  bool safe() const;                        // kString that is marked as safe HTML.
  const std::vector<Value>& items() const;  // kList and kTuple.
  int depth() const { return object_ == nullptr ? 0 : object_->depth; }

 private:
  Kind kind_;
  union {
    int64_t integer;
    double real;
  } number_;
  std::shared_ptr<Object> object_;
};

struct StringObject : Object {
  StringObject(Budget* budget, std::string t, bool is_safe)
      : Object(budget, sizeof(StringObject) + t.capacity()), text(std::move(t)), safe(is_safe) {}
  size_t Length() const;  // In code points.
  bool ascii() const { return Length() == text.size(); }

  const std::string text;
  const bool safe;

 private:
  mutable std::atomic<int64_t> length_{-1};
};

struct UndefinedObject : Object {
  explicit UndefinedObject(std::string m) : Object(nullptr, 0), message(std::move(m)) {}
  const std::string message;
};

// A list, a tuple, or a group of `groupby`: a tuple whose two items also have names.
struct ListObject : Object {
  ListObject(Budget* budget, std::vector<Value> values)
      : Object(budget, sizeof(ListObject) + values.capacity() * sizeof(Value)),
        items(std::move(values)) {}
  const std::vector<Value> items;
  bool is_group = false;
};

struct DictObject : Object {
  using Entries = std::vector<std::pair<Value, Value>>;
  DictObject(Budget* budget, Entries all)
      : Object(budget, sizeof(DictObject) + all.capacity() * 2 * sizeof(Value)),
        entries(std::move(all)) {}
  // Null if there is none. The key must be hashable.
  const Value* Find(Runtime& runtime, const Value& key) const;
  const Value* Find(std::string_view key) const;

  const Entries entries;                          // In order of insertion; keys differ.
  std::unordered_multimap<size_t, size_t> index;  // Hash to entry; empty for few entries.
};

struct DictViewObject : Object {
  enum class What : uint8_t { kKeys, kValues, kItems };
  DictViewObject(Budget* budget, Value d, What w)
      : Object(budget, sizeof(DictViewObject)), dict(std::move(d)), what(w) {}
  const Value dict;
  const What what;
};

struct RangeObject : Object {
  RangeObject(int64_t first, int64_t end, int64_t by, int64_t count)
      : Object(nullptr, 0), start(first), stop(end), step(by), size(count) {}
  const int64_t start, stop, step, size;
};

// What lazy filters give: it can be walked once. Their errors, too, come when they are walked.
struct IteratorObject : Object {
  IteratorObject(Budget* budget, std::vector<Value> values, std::string_view type)
      : Object(budget, sizeof(IteratorObject) + values.capacity() * sizeof(Value)),
        items(std::move(values)),
        type_name(type) {}
  std::vector<Value> items;
  size_t next = 0;
  std::string failure;  // Raised after the last item; "" if there is none.
  const std::string_view type_name;
};

struct NamespaceObject : Holder {
  using Members = std::vector<std::pair<Value, Value>>;
  NamespaceObject(Budget* budget, Members all)
      : Holder(budget, 256 + kBytesOfMember * all.size()), members(std::move(all)) {}
  void Empty() override { members.clear(); }
  // Null if there is none. Takes steps where there are many.
  Value* Find(Runtime& runtime, std::string_view name);
  // `name` is a string.
  void Set(Runtime& runtime, const Value& name, const Value& value);
  Members members;

 private:
  static constexpr size_t kBytesOfMember = 128;
};

struct CyclerObject : Object {
  CyclerObject(Budget* budget, std::vector<Value> values)
      : Object(budget, 128 + values.capacity() * sizeof(Value)), items(std::move(values)) {}
  const std::vector<Value> items;
  size_t position = 0;
};

struct JoinerObject : Object {
  JoinerObject(Budget* budget, Value s) : Object(budget, 128), separator(std::move(s)) {}
  const Value separator;
  bool used = false;
};

// The arguments of a call, evaluated.
struct Arguments {
  std::vector<Value> positional;
  std::vector<std::pair<std::string, Value>> named;
};

struct FunctionObject : Object {
  using Call = Value (*)(Runtime&, Arguments&);
  FunctionObject(std::string_view n, Call c) : Object(nullptr, 0), name(n), call(c) {}
  const std::string_view name;
  const Call call;
};

struct MethodObject : Object {
  using Call = Value (*)(Runtime&, const Value& self, Arguments&);
  MethodObject(Budget* budget, Value s, std::string_view n, Call c)
      : Object(budget, sizeof(MethodObject)), self(std::move(s)), name(n), call(c) {}
  const Value self;
  const std::string_view name;
  const Call call;
};

inline const std::string& Value::text() const { return As<StringObject>().text; }
inline bool Value::safe() const { return As<StringObject>().safe; }
inline const std::vector<Value>& Value::items() const { return As<ListObject>().items; }

// Python's name of the type: "str", "NoneType", "dict".
std::string_view TypeName(const Value& v);
// "'str object'" as the messages of undefined values name it.
std::string ObjectTypeName(const Value& v);
// A name of the template as such messages say it: cut where it is long, since they are not counted.
std::string NameInMessage(std::string_view name);

}  // namespace strata::jinja

#endif  // STRATA_TEXT_TEMPLATE_VALUE_H_
