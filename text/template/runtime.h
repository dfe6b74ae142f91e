// What every operation of a rendering shares: its limits, and the making of values under them.
#ifndef STRATA_TEXT_TEMPLATE_RUNTIME_H_
#define STRATA_TEXT_TEMPLATE_RUNTIME_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "text/template/failure.h"
#include "text/template/template_limits.h"
#include "text/template/value.h"

namespace strata::jinja {

class Runtime {
 public:
  Runtime(const TemplateLimits& limits, int64_t now_s)
      : limits_(limits), now_s_(now_s), budget_(limits.max_value_bytes) {}
  virtual ~Runtime();

  // Calls a function, method, macro, loop or the like.
  virtual Value Call(const Value& callee, Arguments& arguments) = 0;

  void Step(uint64_t count = 1) {
    steps_ += count;
    if (steps_ > limits_.max_steps) {
      FailSteps();
    }
  }
  // Work that touches this many bytes.
  void StepBytes(size_t bytes) { Step(1 + bytes / 128); }
  // Work character by character.
  void StepCharacters(size_t bytes) { Step(1 + bytes / 8); }
  // Fails if a value of this size may not be made.
  void CheckBytes(size_t bytes) const;
  // The same for `count` pieces of `bytes`, whatever their product.
  void CheckBytes(size_t bytes, uint64_t count) const;

  Value String(std::string text, bool safe = false);
  Value List(std::vector<Value> items) { return Sequence(Kind::kList, std::move(items)); }
  Value Tuple(std::vector<Value> items) { return Sequence(Kind::kTuple, std::move(items)); }
  Value Iterator(std::vector<Value> items, std::string_view type_name = "generator");
  // The iterator of what `fill(&items)` yields; if it fails, the iterator does at that place.
  template <typename Fill>
  Value Lazily(Fill fill) {
    std::vector<Value> items;
    std::string failure;
    try {
      fill(&items);
    } catch (const Failure& caught) {
      if (caught.kind != Failure::Kind::kRuntime) {
        throw;
      }
      failure = caught.message;
    }
    Value iterator = Iterator(std::move(items));
    iterator.As<IteratorObject>().failure = std::move(failure);
    return iterator;
  }
  // Later entries of an equal key replace the value of the first.
  Value Dict(DictObject::Entries entries);
  Value Group(Value key, Value list);
  Value Namespace(NamespaceObject::Members members);
  Value Method(const Value& self, std::string_view name, MethodObject::Call call);
  // A value of an object that holds these values from now on, and no others ever. Fails where it
  // nests too deep.
  Value Container(Kind kind, std::shared_ptr<Object> object, std::span<const Value> held) const;
  // The same for a single one.
  Value Container(Kind kind, std::shared_ptr<Object> object, const Value& held) const {
    return Container(kind, std::move(object), std::span(&held, 1));
  }

  // Keeps a holder until the rendering is done, so that no value that is destroyed takes it along.
  void Keep(std::shared_ptr<Holder> holder) { holders_.push_back(std::move(holder)); }
  // Keeps one while this lives, and until the rendering is done if a value refers to it by then.
  template <typename T>
  class Kept {
   public:
    Kept(Runtime& runtime, std::shared_ptr<T> holder)
        : runtime_(runtime), holder_(holder.get()), place_(runtime.holders_.size()) {
      runtime_.Keep(std::move(holder));
    }
    ~Kept() {
      // Those behind it were made while this one lived, and stay.
      std::vector<std::shared_ptr<Holder>>& holders = runtime_.holders_;
      if (holders[place_].use_count() == 1) {
        holders.erase(holders.begin() + static_cast<ptrdiff_t>(place_));
      }
    }
    Kept(const Kept&) = delete;
    Kept& operator=(const Kept&) = delete;

    T* operator->() const { return holder_; }
    Value AsValue(Kind kind) const { return Value(kind, runtime_.holders_[place_]); }

   private:
    Runtime& runtime_;
    T* const holder_;
    const size_t place_;
  };

  const TemplateLimits& limits() const { return limits_; }
  uint64_t steps() const { return steps_; }
  Budget* budget() { return &budget_; }
  int64_t now_s() const { return now_s_; }
  bool autoescape() const { return autoescape_; }
  void set_autoescape(bool on) { autoescape_ = on; }

  // One level of C++ recursion; fails where it goes too deep.
  class Deeper {
   public:
    explicit Deeper(Runtime& runtime) : runtime_(runtime) {
      // A level of the template's own nesting takes a few levels here.
      if (++runtime_.depth_ > 10 * runtime_.limits_.max_depth) {
        --runtime_.depth_;
        runtime_.FailDepth();
      }
    }
    ~Deeper() { --runtime_.depth_; }
    Deeper(const Deeper&) = delete;
    Deeper& operator=(const Deeper&) = delete;

   private:
    Runtime& runtime_;
  };

 private:
  Value Sequence(Kind kind, std::vector<Value> items);
  Value Nested(Kind kind, std::shared_ptr<Object> object, int below) const;
  [[noreturn]] void FailSteps() const;
  [[noreturn]] void FailDepth() const;

  const TemplateLimits limits_;
  const int64_t now_s_;
  uint64_t steps_ = 0;
  int depth_ = 0;
  bool autoescape_ = false;

 protected:
  Budget budget_;

 private:
  std::vector<std::shared_ptr<Holder>> holders_;
};

}  // namespace strata::jinja

#endif  // STRATA_TEXT_TEMPLATE_RUNTIME_H_
