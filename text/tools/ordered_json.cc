#include "text/tools/ordered_json.h"

#include <algorithm>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "common/status.h"

namespace strata {
namespace {

using Json = nlohmann::ordered_json;

absl::Status BadJson(const std::string& message, std::string_view limit = "") {
  return Error(absl::StatusCode::kInvalidArgument, "BAD_JSON", message).Limit(limit);
}

// Builds the document from what the parser meets. It stops where this returns false.
class Builder : public nlohmann::json_sax<Json> {
 public:
  Builder(const std::string& what, const std::vector<std::string>& only)
      : what_(what), only_(only) {}

  const absl::Status& status() const { return status_; }
  Json Take() { return std::move(root_); }

  bool null() override { return Add(nullptr); }
  bool boolean(bool value) override { return Add(value); }
  bool number_integer(number_integer_t value) override { return Add(value); }
  bool number_unsigned(number_unsigned_t value) override { return Add(value); }
  bool number_float(number_float_t value, const string_t&) override { return Add(value); }
  bool string(string_t& value) override { return Add(std::move(value)); }
  bool binary(binary_t&) override { return false; }
  bool start_object(size_t) override { return Open(Json::object()); }
  bool start_array(size_t) override { return Open(Json::array()); }
  bool end_object() override { return Close(); }
  bool end_array() override { return Close(); }

  bool key(string_t& value) override {
    if (left_out_ && depth_ > 1) {
      return true;
    }
    left_out_ = depth_ == 1 && !only_.empty() && std::ranges::find(only_, value) == only_.end();
    if (left_out_) {
      return true;
    }
    Json& object = *open_.back();
    if (object.size() >= kMaxOrderedJsonMembers && !object.contains(value)) {
      status_ = BadJson(what_ + " has an object of too many members",
                        absl::StrCat("json_members=", kMaxOrderedJsonMembers));
      return false;
    }
    member_ = &object[value];
    return true;
  }

  bool parse_error(size_t, const std::string&, const nlohmann::detail::exception&) override {
    status_ = BadJson(what_ + " is no JSON in UTF-8");
    return false;
  }

 private:
  // Where the next value goes.
  Json* Place() {
    if (open_.empty()) {
      return &root_;
    }
    return open_.back()->is_array() ? &open_.back()->emplace_back(nullptr) : member_;
  }

  bool Add(Json value) {
    if (!left_out_) {
      *Place() = std::move(value);
    }
    return true;
  }

  bool Open(Json empty) {
    if (++depth_ > kMaxOrderedJsonDepth) {
      status_ = BadJson(what_ + "'s arrays and objects are nested too deeply",
                        absl::StrCat("json_depth=", kMaxOrderedJsonDepth));
      return false;
    }
    if (!left_out_) {
      Json* const place = Place();
      *place = std::move(empty);
      open_.push_back(place);
    }
    return true;
  }

  bool Close() {
    --depth_;
    if (depth_ == 0) {
      left_out_ = false;
    }
    if (!left_out_) {
      open_.pop_back();
    }
    return true;
  }

  const std::string& what_;
  const std::vector<std::string>& only_;
  absl::Status status_;
  Json root_;
  std::vector<Json*> open_;  // Arrays and objects, the innermost last.
  Json* member_ = nullptr;   // Of the innermost object, whose key was read.
  size_t depth_ = 0;
  bool left_out_ = false;  // The outermost object's member at hand.
};

}  // namespace

absl::StatusOr<Json> ParseOrderedJson(std::string_view text, const std::string& what,
                                      const std::vector<std::string>& only) {
  Builder builder(what, only);
  if (!Json::sax_parse(text.begin(), text.end(), &builder)) {
    return builder.status();
  }
  return builder.Take();
}

}  // namespace strata
