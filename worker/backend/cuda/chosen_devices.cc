#include "worker/backend/cuda/chosen_devices.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <string>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/clock.h"
#include "common/footprint/device_limits.h"
#include "common/model/rank_outputs.h"
#include "common/status.h"
#include "worker/backend/cuda/measure.h"
#include "worker/backend/cuda/nccl/nccl_collective.h"
#include "worker/backend/cuda/nccl/nccl_library.h"

namespace strata::cuda {
namespace {

// How long each device is measured for its share, and by how much memory.
constexpr double kShareSeconds = 0.1;
constexpr uint64_t kShareBytes = uint64_t{256} << 20;
constexpr double kShareSteps = 8;
constexpr milliseconds kLongestWait{60'000};
constexpr std::chrono::microseconds kPause{10};

absl::StatusOr<std::vector<NamedDevice>> ChosenOf(const DeviceDriver& driver,
                                                  const DeviceChoice& choice) {
  if (!choice.given()) {
    return std::vector<NamedDevice>{{.index = 0}};
  }
  std::vector<NamedDevice> chosen = choice.named;
  for (uint32_t i = 0; choice.all && i < driver.count; ++i) {
    chosen.push_back({.index = i});
  }
  if (chosen.size() > kMostRanks) {
    return Error(absl::StatusCode::kInvalidArgument, "RANKS_INVALID",
                 absl::StrCat("there are ", chosen.size(), " GPUs, and a stage has at most ",
                              kMostRanks, " ranks"))
        .Limit(absl::StrCat("ranks=", kMostRanks))
        .Hint("name some of them with --devices, and run another worker on the others");
  }
  for (const NamedDevice& device : chosen) {
    if (device.index >= driver.count) {
      return Error(absl::StatusCode::kInvalidArgument, "DEVICE_UNKNOWN",
                   absl::StrCat("there is no GPU ", device.index, ": this process sees ",
                                driver.count, driver.count == 1 ? ", GPU 0" : ", from GPU 0 to ",
                                driver.count == 1 ? "" : absl::StrCat(driver.count - 1)))
          .Limit(absl::StrCat("devices=", driver.count))
          .Hint(
              "nvidia-smi lists the machine's GPUs, and CUDA_VISIBLE_DEVICES says which of them "
              "the process sees, counted from 0");
    }
  }
  return chosen;
}

// Of ranks whose shares nobody stated.
absl::Status MeasureShares(std::vector<DeviceRank>* ranks) {
  std::vector<double> speeds;
  for (const DeviceRank& rank : *ranks) {
    RETURN_IF_ERROR(rank.device->MakeCurrent());
    const absl::StatusOr<DeviceSpeed> speed =
        MeasureDevice(rank.device.get(), kShareSeconds, kShareBytes);
    if (!speed.ok()) {
      return Annotate(speed.status(), "measuring the speed of " + rank.device->label());
    }
    speeds.push_back(speed->read_bytes_per_s);
  }
  const std::vector<double> shares = SharesOfSpeeds(speeds);
  for (size_t i = 0; i < shares.size(); ++i) {
    (*ranks)[i].share = shares[i];
  }
  return absl::OkStatus();
}

void WarnOfDetours(const DeviceDriver& driver, const std::vector<NamedDevice>& chosen,
                   const BackendOptions& options) {
  if (driver.reach == nullptr || options.warning_log == nullptr) {
    return;
  }
  for (size_t i = 0; i < chosen.size(); ++i) {
    for (size_t j = i + 1; j < chosen.size(); ++j) {
      if (!driver.reach(chosen[i].index, chosen[j].index)) {
        options.warning_log(absl::StrCat(
            "GPU ", chosen[i].index, " and GPU ", chosen[j].index,
            " do not reach each other's memory (nvidia-smi topo -p2p r): what they gather goes by "
            "the host's, which is slower"));
      }
    }
  }
}

}  // namespace

std::vector<double> SharesOfSpeeds(std::span<const double> bytes_per_s) {
  const double fastest =
      bytes_per_s.empty() ? 0 : *std::max_element(bytes_per_s.begin(), bytes_per_s.end());
  std::vector<double> shares;
  for (const double speed : bytes_per_s) {
    shares.push_back(fastest > 0 ? std::max(1.0, std::round(kShareSteps * speed / fastest)) : 1);
  }
  return shares;
}

absl::StatusOr<JoinDevices> JoinByNccl(const NcclCalls& calls) {
  RETURN_IF_ERROR(CheckNcclVersion(calls));
  return [calls](std::span<const std::shared_ptr<Device>> devices, nanoseconds wait) {
    static const SystemClock clock;
    return MakeNcclCollectives(calls, devices,
                               {.timeout = wait == nanoseconds(0) ? kLongestWait : wait,
                                .join_timeout = kLongestWait,
                                .clock = &clock,
                                .pause = [] { std::this_thread::sleep_for(kPause); },
                                .staging_bytes = kGatherStagingBytes,
                                .most_channels = static_cast<int>(kNcclChannels)});
  };
}

absl::StatusOr<std::unique_ptr<Backend>> MakeBackendOnChosen(const DeviceDriver& driver,
                                                             const DeviceOptions& devices,
                                                             const BackendOptions& options) {
  ASSIGN_OR_RETURN(const std::vector<NamedDevice> chosen, ChosenOf(driver, devices.choice));
  if (chosen.size() == 1) {
    ASSIGN_OR_RETURN(std::shared_ptr<Device> device, driver.open(chosen[0].index));
    return MakeBackendOn(std::move(device), options);
  }
  ASSIGN_OR_RETURN(JoinDevices join, driver.join());
  std::vector<DeviceRank> ranks;
  for (const NamedDevice& one : chosen) {
    DeviceRank& rank = ranks.emplace_back();
    ASSIGN_OR_RETURN(rank.device, driver.open(one.index));
    rank.share = one.share;
    rank.memory_bytes = devices.memory_bytes;
  }
  if (chosen[0].share == 0) {
    RETURN_IF_ERROR(MeasureShares(&ranks));
  }
  WarnOfDetours(driver, chosen, options);
  return MakeBackendOver(ranks, std::move(join), options);
}

}  // namespace strata::cuda
