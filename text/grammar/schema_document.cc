#include "text/grammar/schema_document.h"

#include <optional>

#include "absl/strings/str_replace.h"
#include "common/status.h"
#include "text/grammar/schema_errors.h"
#include "text/grammar/uri.h"

namespace strata {
namespace {

std::string Escaped(const std::string& name) {
  return absl::StrReplaceAll(name, {{"~", "~0"}, {"/", "~1"}});
}

// Members whose values are data and not schemas.
bool HoldsData(std::string_view name) {
  return name == "const" || name == "enum" || name == "default" || name == "examples";
}

// Members whose value's members are named by whoever wrote the schema.
bool HoldsNames(std::string_view name) {
  return name == "properties" || name == "patternProperties" || name == "$defs" ||
         name == "definitions" || name == "dependentSchemas";
}

}  // namespace

absl::StatusOr<SchemaDocument> SchemaDocument::Make(JsonValue root) {
  SchemaDocument document;
  document.root_ = std::make_unique<const JsonValue>(std::move(root));
  // A document without $id.
  const std::string* const no_base = &*document.bases_.emplace().first;
  document.resources_[*no_base] = document.root_.get();
  RETURN_IF_ERROR(document.Visit(*document.root_, false,
                                 {.parent = nullptr, .name = "", .index = 0, .base = no_base}));
  return document;
}

absl::Status SchemaDocument::Visit(const JsonValue& value, bool names, Place place) {
  places_[&value] = place;
  const JsonValue* const id = names ? nullptr : value.Find("$id");
  if (id != nullptr && id->IsString()) {
    const std::string_view text = id->text;
    place.base = &*bases_.insert(ResolveUri(*place.base, text.substr(0, text.find('#')))).first;
    places_[&value].base = place.base;
    resources_.emplace(*place.base, &value);
  }
  for (const char* const keyword : {"$anchor", "$dynamicAnchor"}) {
    const JsonValue* const anchor = names ? nullptr : value.Find(keyword);
    if (anchor == nullptr || !anchor->IsString()) {
      continue;
    }
    if (!anchors_.emplace(std::pair(*place.base, anchor->text), &value).second) {
      return SchemaInvalid(PathOf(&value),
                           "has an anchor that is there already: " + QuotedText(anchor->text));
    }
    if (std::string_view(keyword) == "$dynamicAnchor") {
      ++dynamic_anchors_[anchor->text];
      if (place.base == places_[root_.get()].base) {
        root_dynamic_anchors_.emplace(anchor->text, &value);
      }
    }
  }
  for (const auto& [name, member] : value.members) {
    mentioned_.insert(name);
    if (names || !HoldsData(name)) {
      RETURN_IF_ERROR(Visit(member, !names && HoldsNames(name),
                            {.parent = &value, .name = name, .index = 0, .base = place.base}));
    }
  }
  for (size_t i = 0; i < value.items.size(); ++i) {
    RETURN_IF_ERROR(Visit(value.items[i], false,
                          {.parent = &value, .name = "", .index = i, .base = place.base}));
  }
  return absl::OkStatus();
}

std::string SchemaDocument::PathOf(const JsonValue* value) const {
  std::string path;
  for (auto place = places_.find(value); place != places_.end() && place->second.parent != nullptr;
       place = places_.find(place->second.parent)) {
    const std::string token = place->second.parent->IsArray()
                                  ? std::to_string(place->second.index)
                                  : Escaped(std::string(place->second.name));
    path.insert(0, "/" + token);
  }
  return path;
}

absl::StatusOr<const JsonValue*> SchemaDocument::Resolve(const JsonValue* from,
                                                         std::string_view reference) const {
  const auto place = places_.find(from);
  const std::string base = place == places_.end() ? "" : *place->second.base;
  const size_t hash = reference.find('#');
  const std::string target = ResolveUri(base, reference.substr(0, hash));
  const auto resource = resources_.find(target);
  if (resource == resources_.end()) {
    return SchemaUnsupported("$ref", PathOf(from),
                             "it leads out of the schema, to " + QuotedText(target));
  }
  const std::optional<std::string> fragment =
      UriDecoded(hash == std::string_view::npos ? "" : reference.substr(hash + 1));
  if (!fragment) {
    return SchemaInvalid(PathOf(from), "has a malformed reference " + QuotedText(reference));
  }
  if (fragment->empty() || fragment->front() == '/') {
    return Follow(from, resource->second, *fragment);
  }
  const auto anchor = anchors_.find({target, *fragment});
  if (anchor == anchors_.end()) {
    return SchemaInvalid(PathOf(from),
                         "refers to an anchor that is not there: " + QuotedText(*fragment));
  }
  return anchor->second;
}

absl::StatusOr<const JsonValue*> SchemaDocument::Follow(const JsonValue* from, const JsonValue* at,
                                                        std::string_view pointer) const {
  while (!pointer.empty()) {
    const size_t end = pointer.find('/', 1);
    const std::string token = absl::StrReplaceAll(
        std::string(pointer.substr(1, end == std::string_view::npos ? end : end - 1)),
        {{"~1", "/"}, {"~0", "~"}});
    pointer = end == std::string_view::npos ? "" : pointer.substr(end);
    const JsonValue* next = at->Find(token);
    if (at->IsArray() && !token.empty() && token.size() <= 6 &&
        token.find_first_not_of("0123456789") == std::string::npos) {
      const size_t index = std::stoul(token);
      next = index < at->items.size() ? &at->items[index] : nullptr;
    }
    if (next == nullptr) {
      return SchemaInvalid(PathOf(from), "refers to what is not there: " + QuotedText(token));
    }
    at = next;
  }
  return at;
}

absl::StatusOr<const JsonValue*> SchemaDocument::ResolveDynamic(const JsonValue* from,
                                                                std::string_view reference) const {
  ASSIGN_OR_RETURN(const JsonValue* const target, Resolve(from, reference));
  const size_t hash = reference.find('#');
  const std::string name(hash == std::string_view::npos ? "" : reference.substr(hash + 1));
  const JsonValue* const anchor = target->Find("$dynamicAnchor");
  if (anchor == nullptr || !anchor->IsString() || anchor->text != name) {
    return target;  // A plain reference.
  }
  // Every value is looked at from the root on: what is anchored in its resource comes first.
  const auto first = root_dynamic_anchors_.find(name);
  if (first != root_dynamic_anchors_.end()) {
    return first->second;
  }
  const auto count = dynamic_anchors_.find(name);
  if (count != dynamic_anchors_.end() && count->second > 1) {
    return SchemaUnsupported("$dynamicRef", PathOf(from),
                             "several schemas are anchored as " + QuotedText(name));
  }
  return target;
}

}  // namespace strata
