#include "worker/backend/device_choice.h"

#include <cmath>
#include <string>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "common/model/rank_outputs.h"
#include "common/status.h"

namespace strata {
namespace {

absl::Status BadDevices(const std::string& what) {
  return Error(absl::StatusCode::kInvalidArgument, "BAD_DEVICES", what)
      .Hint(
          "--devices takes all, numbers of devices (0,1), or these with what each has of a stage "
          "(0=2,1=1)");
}

absl::StatusOr<NamedDevice> ParseOne(std::string_view text, std::string_view all) {
  const size_t equals = text.find('=');
  const std::string number(text.substr(0, equals));
  NamedDevice device;
  const bool digits =
      !number.empty() && number.find_first_not_of("0123456789") == std::string::npos;
  if (!digits || !absl::SimpleAtoi(number, &device.index)) {
    return BadDevices(
        absl::StrCat("--devices ", std::string(all), ": '", number, "' is no number of a device"));
  }
  if (equals == std::string_view::npos) {
    return device;
  }
  const std::string share(text.substr(equals + 1));
  if (!absl::SimpleAtod(share, &device.share) || !std::isfinite(device.share) ||
      device.share <= 0) {
    return BadDevices(absl::StrCat("--devices ", std::string(all), ": the share '", share,
                                   "' of device ", device.index, " is no number above 0"));
  }
  return device;
}

}  // namespace

absl::StatusOr<DeviceChoice> ParseDevices(std::string_view text) {
  DeviceChoice choice;
  if (text.empty()) {
    return choice;
  }
  if (text == "all") {
    choice.all = true;
    return choice;
  }
  const std::string whole(text);
  for (const absl::string_view part : absl::StrSplit(whole, ',')) {
    ASSIGN_OR_RETURN(const NamedDevice device, ParseOne({part.data(), part.size()}, text));
    for (const NamedDevice& before : choice.named) {
      if (before.index == device.index) {
        return BadDevices(
            absl::StrCat("--devices ", whole, " names device ", device.index, " twice"));
      }
      if ((before.share > 0) != (device.share > 0)) {
        return BadDevices(absl::StrCat("--devices ", whole, " says the share of some devices, and ",
                                       "of device ", device.share > 0 ? before.index : device.index,
                                       " none"));
      }
    }
    choice.named.push_back(device);
  }
  if (choice.named.size() > kMostRanks) {
    return Error(absl::StatusCode::kInvalidArgument, "RANKS_INVALID",
                 absl::StrCat("--devices ", whole, " names ", choice.named.size(),
                              " devices, and a stage has at most ", kMostRanks, " ranks"))
        .Limit(absl::StrCat("ranks=", kMostRanks))
        .Hint("name fewer, and run another worker on the others");
  }
  return choice;
}

}  // namespace strata
