// Filters over sequences.
#include <algorithm>

#include "text/template/builtins.h"
#include "text/template/escape.h"
#include "text/template/operators.h"
#include "text/template/printing.h"
#include "text/unicode/python_text.h"
#include "text/unicode/utf8.h"

namespace strata::jinja {
namespace {

// What filters compare items by: their attribute, in lower case unless case matters.
class SortKey {
 public:
  // `attribute` None: the item itself. "a,b" sorts by several where `several` is set.
  SortKey(Runtime& runtime, const Value& attribute, bool case_sensitive, bool several = false)
      : runtime_(runtime), case_sensitive_(case_sensitive) {
    if (attribute.Is(Kind::kNone)) {
      return;
    }
    if (several && attribute.IsString() && attribute.text().find(',') != std::string::npos) {
      tuple_ = true;
      const std::string_view all = attribute.text();
      for (size_t at = 0; at <= all.size();) {
        const size_t end = std::min(all.find(',', at), all.size());
        paths_.push_back(Value::Constant(std::string(all.substr(at, end - at))));
        at = end + 1;
      }
    } else {
      paths_.push_back(attribute);
    }
  }

  Value Of(const Value& item) const {
    if (paths_.empty()) {
      return Fold(item);
    }
    std::vector<Value> parts;
    for (const Value& path : paths_) {
      parts.push_back(Fold(GetPath(runtime_, item, path)));
    }
    return tuple_ ? runtime_.Tuple(std::move(parts)) : parts[0];
  }

 private:
  Value Fold(const Value& v) const {
    if (!v.IsString() || case_sensitive_) {
      return v;
    }
    runtime_.StepCharacters(v.text().size());
    return runtime_.String(python::ToLower(v.text()));
  }

  Runtime& runtime_;
  const bool case_sensitive_;
  bool tuple_ = false;
  std::vector<Value> paths_;
};

struct Keyed {
  Value key;
  Value item;
};

std::vector<Keyed> KeyedItems(Runtime& runtime, const Value& input, const SortKey& key) {
  const Items items(runtime, input);
  runtime.CheckBytes(items.size() * sizeof(Keyed));
  std::vector<Keyed> all;
  all.reserve(items.size());
  for (size_t i = 0; i < items.size(); ++i) {
    runtime.Step();
    const Value item = items[i];
    all.push_back({key.Of(item), item});
  }
  return all;
}

void SortKeyed(Runtime& runtime, std::vector<Keyed>* all, bool reverse) {
  std::stable_sort(all->begin(), all->end(), [&](const Keyed& a, const Keyed& b) {
    return reverse ? Order(runtime, b.key, a.key) == -1 : Order(runtime, a.key, b.key) == -1;
  });
}

std::vector<Value> ItemsOf(std::vector<Keyed> all) {
  std::vector<Value> items;
  items.reserve(all.size());
  for (Keyed& keyed : all) {
    items.push_back(std::move(keyed.item));
  }
  return items;
}

Value Sort(Runtime& runtime, const Value& input, Arguments& arguments) {
  const Parameters parameters("sort", arguments, {"reverse", "case_sensitive", "attribute"});
  const SortKey key(runtime, parameters.GetOr(2, Value::None()), parameters.IsTrue(1), true);
  std::vector<Keyed> all = KeyedItems(runtime, input, key);
  SortKeyed(runtime, &all, parameters.IsTrue(0));
  return runtime.List(ItemsOf(std::move(all)));
}

Value DictSort(Runtime& runtime, const Value& input, Arguments& arguments) {
  const Parameters parameters("dictsort", arguments, {"case_sensitive", "by", "reverse"});
  if (!input.Is(Kind::kDict)) {
    Fail("dictsort needs a mapping, not " + std::string(TypeName(input)));
  }
  const std::string by = parameters.Has(1) ? parameters.Text(1) : "key";
  if (by != "key" && by != "value") {
    Fail("You can only sort by either \"key\" or \"value\"");
  }
  const SortKey key(runtime, Value::None(), parameters.IsTrue(0));
  std::vector<Keyed> all;
  for (const auto& [name, value] : input.As<DictObject>().entries) {
    all.push_back({key.Of(by == "key" ? name : value), runtime.Tuple({name, value})});
  }
  SortKeyed(runtime, &all, parameters.IsTrue(2));
  return runtime.List(ItemsOf(std::move(all)));
}

Value Unique(Runtime& runtime, const Value& input, Arguments& arguments) {
  const Parameters parameters("unique", arguments, {"case_sensitive", "attribute"});
  const SortKey key(runtime, parameters.GetOr(1, Value::None()), parameters.IsTrue(0));
  return runtime.Lazily([&](std::vector<Value>* kept) {
    std::unordered_multimap<size_t, Value> seen;
    for (Keyed& keyed : KeyedItems(runtime, input, key)) {
      runtime.StepBytes(keyed.key.IsString() ? keyed.key.text().size() : 0);
      const size_t hash = HashOf(runtime, keyed.key);
      const auto [begin, end] = seen.equal_range(hash);
      const bool known = std::any_of(
          begin, end, [&](const auto& entry) { return Equals(runtime, entry.second, keyed.key); });
      if (!known) {
        seen.emplace(hash, keyed.key);
        kept->push_back(std::move(keyed.item));
      }
    }
  });
}

template <int kWanted>
Value Extreme(Runtime& runtime, const Value& input, Arguments& arguments) {
  const Parameters parameters("min/max", arguments, {"case_sensitive", "attribute"});
  const SortKey key(runtime, parameters.GetOr(1, Value::None()), parameters.IsTrue(0));
  const std::vector<Keyed> all = KeyedItems(runtime, input, key);
  if (all.empty()) {
    return Value::Undefined("No aggregated item, sequence was empty.");
  }
  const Keyed* best = &all[0];
  for (const Keyed& keyed : all) {
    if (&keyed != best &&
        Order(runtime, keyed.key, best->key, kWanted < 0 ? "<" : ">") == kWanted) {
      best = &keyed;
    }
  }
  return best->item;
}

Value GroupBy(Runtime& runtime, const Value& input, Arguments& arguments) {
  const Parameters parameters("groupby", arguments, {"attribute", "default", "case_sensitive"});
  const Value& path = parameters.Get(0);
  const bool case_sensitive = parameters.IsTrue(2);
  const Items items(runtime, input);
  std::vector<Keyed> all;
  std::vector<Value> shown;
  const SortKey fold(runtime, Value::None(), case_sensitive);
  for (size_t i = 0; i < items.size(); ++i) {
    Value key = GetPath(runtime, items[i], path);
    if (key.IsUndefined() && parameters.Has(1)) {
      key = parameters.Get(1);
    }
    all.push_back({runtime.Tuple({fold.Of(key), key}), items[i]});
  }
  std::stable_sort(all.begin(), all.end(), [&](const Keyed& a, const Keyed& b) {
    return Order(runtime, a.key.items()[0], b.key.items()[0]) == -1;
  });
  std::vector<Value> groups;
  for (size_t i = 0; i < all.size();) {
    const Value& key = all[i].key;
    std::vector<Value> members;
    for (; i < all.size() && Equals(runtime, all[i].key.items()[0], key.items()[0]); ++i) {
      members.push_back(all[i].item);
    }
    groups.push_back(runtime.Group(key.items()[1], runtime.List(std::move(members))));
  }
  return runtime.List(std::move(groups));
}

Value First(Runtime& runtime, const Value& input, Arguments& arguments) {
  TakesNothing("first", arguments);
  if (input.Is(Kind::kIterator)) {
    auto& iterator = input.As<IteratorObject>();
    if (iterator.next < iterator.items.size()) {
      return iterator.items[iterator.next++];
    }
    if (!iterator.failure.empty()) {
      Fail(iterator.failure);
    }
  } else if (input.IsString() && !input.text().empty()) {
    return runtime.String(input.text().substr(0, DecodeAt(input.text(), 0).bytes));
  } else if (const Items items(runtime, input); items.size() > 0) {
    return items[0];
  }
  return Value::Undefined("No first item, sequence was empty.");
}

Value Last(Runtime& runtime, const Value& input, Arguments& arguments) {
  TakesNothing("last", arguments);
  if (input.Is(Kind::kIterator)) {
    Fail("'" + std::string(TypeName(input)) + "' object is not reversible");
  }
  if (input.IsString() && !input.text().empty()) {
    return runtime.String(input.text().substr(PreviousStart(input.text(), input.text().size())),
                          input.safe());
  }
  if (const Items items(runtime, input); items.size() > 0) {
    return items[items.size() - 1];
  }
  return Value::Undefined("No last item, sequence was empty.");
}

Value ListFilter(Runtime& runtime, const Value& input, Arguments& arguments) {
  TakesNothing("list", arguments);
  return runtime.List(Items(runtime, input).ToVector());
}

Value Reverse(Runtime& runtime, const Value& input, Arguments& arguments) {
  TakesNothing("reverse", arguments);
  if (input.IsString()) {
    const Value none = Value::None();
    return GetSlice(runtime, input, none, none, Value::Int(-1));
  }
  std::vector<Value> items = Items(runtime, input).ToVector();
  std::reverse(items.begin(), items.end());
  return runtime.Iterator(std::move(items), "list_reverseiterator");
}

Value Join(Runtime& runtime, const Value& input, Arguments& arguments) {
  const Parameters parameters("join", arguments, {"d", "attribute"});
  const Items items(runtime, input);
  const bool has_attribute = parameters.Has(1) && !parameters.Get(1).Is(Kind::kNone);
  const Value glue = parameters.GetOr(0, Value::Constant(""));
  if (glue.IsString() && items.size() > 0) {
    runtime.CheckBytes(glue.text().size(), items.size() - 1);
  }
  std::vector<Value> values;
  bool any_safe = glue.IsString() && glue.safe();
  for (size_t i = 0; i < items.size(); ++i) {
    values.push_back(has_attribute ? GetPath(runtime, items[i], parameters.Get(1)) : items[i]);
    any_safe = any_safe || (values.back().IsString() && values.back().safe());
  }
  const bool escapes = runtime.autoescape() && any_safe;
  const auto append = [&](const Value& value, std::string* text) {
    if (escapes && !(value.IsString() && value.safe())) {
      *text += Escaped(runtime, ToString(runtime, value));
    } else {
      AppendString(runtime, value, text);
    }
    runtime.CheckBytes(text->size());
  };
  std::string text;
  for (size_t i = 0; i < values.size(); ++i) {
    if (i > 0) {
      append(glue, &text);
    }
    append(values[i], &text);
  }
  return runtime.String(std::move(text), escapes);
}

Value Sum(Runtime& runtime, const Value& input, Arguments& arguments) {
  const Parameters parameters("sum", arguments, {"attribute", "start"});
  const bool has_attribute = parameters.Has(0) && !parameters.Get(0).Is(Kind::kNone);
  Value total = parameters.GetOr(1, Value::Int(0));
  if (total.IsString()) {
    Fail("sum() can't sum strings [use ''.join(seq) instead]");
  }
  const Items items(runtime, input);
  for (size_t i = 0; i < items.size(); ++i) {
    const Value item = has_attribute ? GetPath(runtime, items[i], parameters.Get(0)) : items[i];
    runtime.Step();
    total = Binary(runtime, Operator::kAdd, total, item);
  }
  return total;
}

Value Batch(Runtime& runtime, const Value& input, Arguments& arguments) {
  const Parameters parameters("batch", arguments, {"linecount", "fill_with"});
  parameters.Get(0);
  const int64_t line_count = parameters.Integer(0, 1);
  const bool fills = parameters.Has(1) && !parameters.Get(1).Is(Kind::kNone);
  return runtime.Lazily([&](std::vector<Value>* batches) {
    const Items items(runtime, input);
    std::vector<Value> current;
    for (size_t i = 0; i < items.size(); ++i) {
      if (static_cast<int64_t>(current.size()) == line_count) {
        batches->push_back(runtime.List(std::move(current)));
        current.clear();
      }
      current.push_back(items[i]);
    }
    if (current.empty()) {
      return;
    }
    if (fills && static_cast<int64_t>(current.size()) < line_count) {
      runtime.CheckBytes(sizeof(Value), static_cast<uint64_t>(line_count));
      current.resize(static_cast<size_t>(line_count), parameters.Get(1));
    }
    batches->push_back(runtime.List(std::move(current)));
  });
}

Value Slice(Runtime& runtime, const Value& input, Arguments& arguments) {
  const Parameters parameters("slice", arguments, {"slices", "fill_with"});
  parameters.Get(0);
  const int64_t slices = parameters.Integer(0, 1);
  const bool fills = parameters.Has(1) && !parameters.Get(1).Is(Kind::kNone);
  return runtime.Lazily([&](std::vector<Value>* all) {
    const std::vector<Value> items = Items(runtime, input).ToVector();
    if (slices == 0) {
      Fail("integer division or modulo by zero");
    }
    if (slices < 0) {
      return;
    }
    runtime.CheckBytes(sizeof(Value) + sizeof(ListObject), static_cast<uint64_t>(slices));
    const auto length = static_cast<int64_t>(items.size());
    const int64_t with_extra = length % slices;
    int64_t start = 0;
    for (int64_t i = 0; i < slices; ++i) {
      const int64_t end = start + length / slices + (i < with_extra ? 1 : 0);
      std::vector<Value> part(items.begin() + start, items.begin() + end);
      if (fills && i >= with_extra) {
        part.push_back(parameters.Get(1));
      }
      all->push_back(runtime.List(std::move(part)));
      start = end;
    }
  });
}

// Rendering is a function of its input: no chance, always the first.
Value Random(Runtime& runtime, const Value& input, Arguments& arguments) {
  return First(runtime, input, arguments);
}

constexpr FilterEntry kOfSequences[] = {
    {"sort", &Sort},       {"dictsort", &DictSort}, {"unique", &Unique}, {"min", &Extreme<-1>},
    {"max", &Extreme<1>},  {"groupby", &GroupBy},   {"first", &First},   {"last", &Last},
    {"list", &ListFilter}, {"reverse", &Reverse},   {"join", &Join},     {"sum", &Sum},
    {"batch", &Batch},     {"slice", &Slice},       {"random", &Random},
};

}  // namespace

const std::span<const FilterEntry> kSequenceFilters(kOfSequences);

}  // namespace strata::jinja
