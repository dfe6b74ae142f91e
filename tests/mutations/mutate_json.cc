#include "tests/mutations/mutate_json.h"

#include <algorithm>
#include <utility>

namespace strata::testing {
namespace {

using Json = nlohmann::ordered_json;

// A place in a document: what holds it, and where.
struct Place {
  Json* parent = nullptr;
  std::string key;  // Of an object.
  size_t index = 0;
  std::vector<std::string> fields;
  Json& value() const { return parent->is_object() ? (*parent)[key] : (*parent)[index]; }
};

// Every turn is as likely as the others, so that a long list does not win by its length. It begins
// with `first` unless that is "".
Place Pick(Json* document, const std::string& first, std::mt19937_64* random) {
  Place place;
  Json* at = document;
  if (!first.empty()) {
    place = {.parent = document, .key = first, .fields = {first}};
    at = &place.value();
  }
  while (at->is_structured() && !at->empty() && (place.parent == nullptr || (*random)() % 5 != 0)) {
    place.parent = at;
    place.index = (*random)() % at->size();
    if (at->is_object()) {
      auto it = at->begin();
      std::advance(it, static_cast<ptrdiff_t>(place.index));
      place.key = it.key();
      place.fields.insert(place.fields.begin(), place.key);
    }
    at = &place.value();
  }
  return place;
}

Json AnotherKind(std::mt19937_64* random, const Json& value) {
  const std::vector<Json> kinds = {nullptr,
                                   true,
                                   false,
                                   -1,
                                   0,
                                   1,
                                   uint64_t{1} << 31,
                                   uint64_t{1} << 40,
                                   uint64_t{1} << 63,
                                   INT64_MIN,
                                   1e308,
                                   -1e-300,
                                   0.5,
                                   "",
                                   "x",
                                   std::string(5000, 'y'),
                                   Json::array(),
                                   Json::object(),
                                   Json::array({value}),
                                   Json{{"a", value}}};
  return kinds[(*random)() % kinds.size()];
}

// A value that is nearly the same.
Json ALittle(std::mt19937_64* random, const Json& value) {
  const uint64_t way = (*random)() % 4;
  if (value.is_number_integer()) {
    const auto number = value.get<int64_t>();
    return way == 0 ? Json(2 * number)
                    : Json(way == 1   ? number + 1
                           : way == 2 ? number - 1
                                      : -number);
  }
  if (value.is_number()) {
    const auto number = value.get<double>();
    return way == 0 ? 2 * number : way == 1 ? number / 2 : way == 2 ? number + 1 : -number;
  }
  if (value.is_boolean()) {
    return !value.get<bool>();
  }
  if (value.is_string()) {
    std::string text = value.get<std::string>();
    if (way == 0 && !text.empty()) {
      text.pop_back();
    } else if (way == 1) {
      text.insert(text.begin(), ' ');
    } else {
      text += way == 2 ? "x" : "\xC3\xA9";
    }
    return text;
  }
  if (value.is_array() && !value.empty()) {
    Json list = value;
    if (way == 0) {
      list.erase(list.size() - 1);
    } else if (way == 1) {
      list.push_back(list.back());
    } else {
      std::swap(list.front(), list.back());
    }
    return list;
  }
  return nullptr;
}

std::string Shown(const Json& value) {
  return value.dump(-1, ' ', true, Json::error_handler_t::replace).substr(0, 60);
}

JsonMutation OfText(const Json& document, std::mt19937_64* random) {
  JsonMutation mutation;
  mutation.text = document.dump();
  const size_t at = (*random)() % mutation.text.size();
  if ((*random)() % 2 == 0) {
    mutation.text.resize(at);
    mutation.what = "cut at byte " + std::to_string(at);
  } else {
    mutation.text[at] = static_cast<char>((*random)());
    mutation.what = "byte " + std::to_string(at) + " changed";
  }
  return mutation;
}

}  // namespace

JsonMutation MutateJson(const Json& document, std::mt19937_64* random,
                        const std::vector<std::string>& favoured) {
  if ((*random)() % 16 == 0) {
    return OfText(document, random);
  }
  Json changed = document;
  std::vector<std::string> there;
  for (const std::string& name : favoured) {
    if (document.contains(name)) there.push_back(name);
  }
  const bool favours = !there.empty() && (*random)() % 2 == 0;
  const Place place = Pick(&changed, favours ? there[(*random)() % there.size()] : "", random);
  JsonMutation mutation;
  mutation.fields = place.fields;
  const std::string name = place.fields.empty() ? "" : place.fields.front();
  switch ((*random)() % 8) {
    case 0:
      mutation.what = name + " removed";
      place.parent->is_object() ? void(place.parent->erase(place.key))
                                : place.parent->erase(place.index);
      break;
    case 1:
      if (place.parent->is_object()) {
        mutation.what = name + " renamed";
        Json value = place.value();
        place.parent->erase(place.key);
        (*place.parent)[place.key + "_"] = std::move(value);
        break;
      }
      [[fallthrough]];
    case 2:
    case 3:
    case 4: {
      Json value = AnotherKind(random, place.value());
      mutation.what = name + " := " + Shown(value);
      place.value() = std::move(value);
      break;
    }
    default: {
      Json value = ALittle(random, place.value());
      mutation.what = name + " := " + Shown(value) + " (a little)";
      place.value() = std::move(value);
    }
  }
  mutation.text = changed.dump(-1, ' ', false, Json::error_handler_t::replace);
  return mutation;
}

}  // namespace strata::testing
