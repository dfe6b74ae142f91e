// Functions that every template has.
#include <algorithm>
#include <cmath>
#include <ctime>

#include "text/template/builtins.h"
#include "text/template/operators.h"
#include "text/template/printing.h"

namespace strata::jinja {
namespace {

constexpr int64_t kMaxRange = 100'000;

Value Range(Runtime& runtime, Arguments& arguments) {
  const Parameters parameters("range", arguments, {"start", "stop", "step"});
  parameters.Get(0);
  const bool one = !parameters.Has(1);
  const int64_t start = one ? 0 : parameters.Integer(0, 0);
  const int64_t stop = one ? parameters.Integer(0, 0) : parameters.Integer(1, 0);
  const int64_t step = parameters.Integer(2, 1);
  if (step == 0) {
    Fail("range() arg 3 must not be zero");
  }
  const __int128 span =
      step > 0 ? static_cast<__int128>(stop) - start : static_cast<__int128>(start) - stop;
  const __int128 stride = step > 0 ? static_cast<__int128>(step) : -static_cast<__int128>(step);
  const __int128 size = span <= 0 ? 0 : (span + stride - 1) / stride;
  if (size > kMaxRange) {
    Fail("Range too big. The sandbox blocks ranges larger than MAX_RANGE (100000).");
  }
  return Value(Kind::kRange,
               std::make_shared<RangeObject>(start, stop, step, static_cast<int64_t>(size)));
}

// Entries of a mapping, or of a sequence of pairs.
DictObject::Entries EntriesOf(Runtime& runtime, const Value& source) {
  if (source.Is(Kind::kDict)) {
    return source.As<DictObject>().entries;
  }
  if (source.IsUndefined()) {
    FailUndefined(source);
  }
  DictObject::Entries entries;
  const Items items(runtime, source);
  for (size_t i = 0; i < items.size(); ++i) {
    const Items pair(runtime, items[i]);
    if (pair.size() != 2) {
      Fail("dictionary update sequence element #" + std::to_string(i) + " has length " +
           std::to_string(pair.size()) + "; 2 is required");
    }
    entries.emplace_back(pair[0], pair[1]);
  }
  return entries;
}

Value MakeDict(Runtime& runtime, Arguments& arguments) {
  DictObject::Entries entries;
  if (arguments.positional.size() > 1) {
    Fail("dict expected at most 1 argument, got " + std::to_string(arguments.positional.size()));
  }
  if (!arguments.positional.empty()) {
    entries = EntriesOf(runtime, arguments.positional[0]);
  }
  for (auto& [name, value] : arguments.named) {
    entries.emplace_back(runtime.String(name), std::move(value));
  }
  return runtime.Dict(std::move(entries));
}

Value MakeNamespace(Runtime& runtime, Arguments& arguments) {
  const Value names = MakeDict(runtime, arguments);
  const auto& entries = names.As<DictObject>().entries;
  NamespaceObject::Members members;
  for (const auto& [key, value] : entries) {
    const Value name = StringOf(runtime, key);
    if (name.text().starts_with('_')) {
      Fail("Chat templates cannot store underscore-prefixed attributes on a namespace, but got '" +
           name.text() + "'. Please rename the attribute.");
    }
    members.emplace_back(name, value);
  }
  return runtime.Namespace(std::move(members));
}

Value RaiseException(Runtime& runtime, Arguments& arguments) {
  const Parameters parameters("raise_exception", arguments, {"message"});
  throw Failure{Failure::Kind::kRaised, ToString(runtime, parameters.Get(0))};
}

// %f, %z and %Z are Python's own; the rest is the C library's.
std::string PythonDirectives(const std::string& format) {
  std::string out;
  for (size_t i = 0; i < format.size(); ++i) {
    if (format[i] != '%' || i + 1 >= format.size()) {
      out.push_back(format[i]);
      continue;
    }
    const char directive = format[++i];
    if (directive == 'f') {
      out += "000000";
    } else if (directive != 'z' && directive != 'Z') {
      out.push_back('%');
      out.push_back(directive);
    }
  }
  return out;
}

Value StrftimeNow(Runtime& runtime, Arguments& arguments) {
  const Parameters parameters("strftime_now", arguments, {"format"});
  runtime.Step(parameters.Text(0).size() * 8);
  // The blank tells an empty result from one that did not fit.
  const std::string format = PythonDirectives(parameters.Text(0)) + " ";
  const auto now = static_cast<time_t>(runtime.now_s());
  std::tm utc{};
  if (gmtime_r(&now, &utc) == nullptr) {
    Fail("strftime_now: the time is out of range");
  }
  std::string out(4096, '\0');
  const size_t bytes = std::strftime(out.data(), out.size(), format.c_str(), &utc);
  if (bytes == 0) {
    Fail("strftime_now: the format is too long");
  }
  out.resize(bytes - 1);
  return runtime.String(std::move(out));
}

Value MakeCycler(Runtime& runtime, Arguments& arguments) {
  if (arguments.positional.empty()) {
    Fail("at least one item has to be provided");
  }
  auto cycler = std::make_shared<CyclerObject>(runtime.budget(), std::move(arguments.positional));
  return runtime.Container(Kind::kCycler, cycler, cycler->items);
}

Value MakeJoiner(Runtime& runtime, Arguments& arguments) {
  const Parameters parameters("joiner", arguments, {"sep"});
  const Value separator = parameters.GetOr(0, Value::Constant(", "));
  return runtime.Container(Kind::kJoiner,
                           std::make_shared<JoinerObject>(runtime.budget(), separator), separator);
}

Value Lipsum(Runtime& runtime, Arguments& arguments) {
  Fail("lipsum() makes random text, which a chat template cannot use");
}

Value Self(Runtime& runtime, Arguments& arguments) { Fail("'self' object is not callable"); }

}  // namespace

Value FindGlobal(std::string_view name) {
  static constexpr std::pair<std::string_view, FunctionObject::Call> kGlobals[] = {
      {"range", &Range},
      {"dict", &MakeDict},
      {"namespace", &MakeNamespace},
      {"raise_exception", &RaiseException},
      {"strftime_now", &StrftimeNow},
      {"cycler", &MakeCycler},
      {"joiner", &MakeJoiner},
      {"lipsum", &Lipsum},
      {"self", &Self}};
  for (const auto& [known, call] : kGlobals) {
    if (known == name) {
      return Value(Kind::kFunction, std::make_shared<FunctionObject>(known, call));
    }
  }
  return Value();
}

}  // namespace strata::jinja
