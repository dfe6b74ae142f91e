#include "coordinator/service/nodes/worker_claims.h"

#include <cmath>
#include <string>

#include "common/model/rank_outputs.h"
#include "common/names.h"
#include "common/printable.h"
#include "common/rpc/address.h"
#include "common/status.h"

namespace strata {
namespace {

constexpr size_t kMaxTextBytes = 64;      // Of a version, a backend and the like.
constexpr size_t kMaxDetailBytes = 1024;  // Of each text of an error.
constexpr size_t kMaxFacts = 32;          // Of an error.
constexpr int kMaxDigests = 8192;         // Of a message about a cache.
constexpr uint32_t kMaxThreads = 1u << 16;
constexpr uint64_t kMaxBytes = uint64_t{1} << 60;
constexpr double kMaxBytesPerSecond = 1e15;
constexpr double kMaxFlops = 1e18;
constexpr double kMaxLatencyMs = 1e6;

absl::Status BadInfo(const std::string& what) {
  return Error(absl::StatusCode::kInvalidArgument, "BAD_NODE_INFO", what)
      .Hint("start the strata-worker of this coordinator's version there");
}

bool IsWithin(double value, double most) {
  return std::isfinite(value) && value >= 0 && value <= most;
}

// By reference: texts of all kinds.
void CleanText(std::string* text, size_t max_bytes) {
  if (text->size() > max_bytes || !IsPrintable(*text)) {
    *text = Printable(*text, max_bytes);
  }
}

void CleanError(v1::ErrorDetail* error) {
  CleanText(error->mutable_reason(), kMaxTextBytes);
  CleanText(error->mutable_message(), kMaxDetailBytes);
  CleanText(error->mutable_hint(), kMaxDetailBytes);
  CleanText(error->mutable_limit(), kMaxDetailBytes);
  CleanText(error->mutable_node(), kMaxTextBytes);
  CleanText(error->mutable_request_id(), 2 * kMaxTextBytes);
  if (error->facts_size() > static_cast<int>(kMaxFacts)) {
    error->clear_facts();
  }
  google::protobuf::Map<std::string, std::string> facts;
  for (const auto& [key, value] : error->facts()) {
    facts[Printable(key, kMaxTextBytes)] = Printable(value, kMaxDetailBytes);
  }
  error->mutable_facts()->swap(facts);
}

absl::Status CleanHeartbeat(v1::Heartbeat* heartbeat) {
  if (heartbeat->has_unfit()) {
    CleanError(heartbeat->mutable_unfit());
  }
  const bool good =
      heartbeat->used_bytes() <= kMaxBytes && heartbeat->cache_bytes() <= kMaxBytes &&
      heartbeat->fetched_bytes() <= kMaxBytes && heartbeat->device_used_bytes() <= kMaxBytes &&
      heartbeat->fetched_from_workers_bytes() <= kMaxBytes && heartbeat->sent_bytes() <= kMaxBytes;
  if (good) {
    return absl::OkStatus();
  }
  heartbeat->clear_used_bytes();
  heartbeat->clear_cache_bytes();
  heartbeat->clear_fetched_bytes();
  heartbeat->clear_device_used_bytes();
  heartbeat->clear_fetched_from_workers_bytes();
  heartbeat->clear_sent_bytes();
  return BadInfo("a heartbeat with more bytes than any machine has");
}

absl::Status CleanContents(v1::CacheContents* contents) {
  const int digests = contents->blobs_size() + contents->gone_blobs_size() +
                      contents->layers_size() + contents->gone_layers_size();
  if (digests <= kMaxDigests) {
    return absl::OkStatus();
  }
  contents->Clear();
  return BadInfo("more digests of weights in a message than the " + std::to_string(kMaxDigests) +
                 " that one may have");
}

absl::Status CleanKept(v1::LayerKept* kept) {
  if (kept->has_error()) {
    CleanError(kept->mutable_error());
  }
  if (kept->bytes() <= kMaxBytes && kept->fetched_bytes() <= kMaxBytes) {
    return absl::OkStatus();
  }
  kept->clear_bytes();
  kept->clear_fetched_bytes();
  return BadInfo("a layer that takes more bytes than any machine has");
}

absl::Status CleanMeasure(v1::PeerMeasured* measured) {
  CleanText(measured->mutable_node(), kMaxTextBytes);
  if (measured->has_error()) {
    CleanError(measured->mutable_error());
  }
  if (IsWithin(measured->latency_ms(), kMaxLatencyMs) &&
      IsWithin(measured->bytes_per_s(), kMaxBytesPerSecond)) {
    return absl::OkStatus();
  }
  measured->clear_latency_ms();
  measured->clear_bytes_per_s();
  const absl::Status bad =
      Error(absl::StatusCode::kInvalidArgument, "BAD_MEASURE",
            "the link to " + measured->node() + " was measured with figures that no link has");
  *measured->mutable_error() = DetailOf(bad);
  return bad;
}

}  // namespace

namespace {

// Of several devices: plans divide by their shares and memory.
absl::Status CheckDevices(const v1::NodeInfo& info) {
  if (info.devices().empty()) {
    return absl::OkStatus();
  }
  if (info.devices_size() < 2 || static_cast<uint32_t>(info.devices_size()) > kMostRanks) {
    return BadInfo("a node with " + std::to_string(info.devices_size()) +
                   " devices for a stage; several are 2 to " + std::to_string(kMostRanks));
  }
  uint64_t memory = 0;
  uint32_t begin = 0;
  for (const v1::NodeDevice& device : info.devices()) {
    if (device.name().size() > kMaxTextBytes || !IsPrintable(device.name())) {
      return BadInfo("a node with a device whose name is '" +
                     Printable(device.name(), kMaxTextBytes) + "'");
    }
    if (device.memory_bytes() == 0 || device.memory_bytes() > kMaxBytes ||
        !IsWithin(device.read_bytes_per_s(), kMaxBytesPerSecond)) {
      return BadInfo("a node with a device of memory or speed that none has");
    }
    if (device.share_begin() != begin || device.share_end() <= begin) {
      return BadInfo("a node with devices whose shares are not one behind another");
    }
    begin = device.share_end();
    memory += device.memory_bytes();
  }
  if (begin != kShareParts || memory != info.memory_bytes() || info.host_memory_bytes() == 0) {
    return BadInfo("a node whose devices are not all of it");
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status CheckNodeInfo(const v1::NodeInfo& info) {
  RETURN_IF_ERROR(CheckNodeName(info.name()));
  const struct {
    const char* what;
    const std::string& text;
  } texts[] = {{"version", info.version()},
               {"backend", info.backend()},
               {"isa", info.isa()},
               {"device", info.device()},
               {"numerics", info.numerics()},
               {"platform", info.platform()},
               {"device_name", info.device_name()}};
  for (const auto& [what, text] : texts) {
    if (text.size() > kMaxTextBytes || !IsPrintable(text)) {
      return BadInfo("a node whose " + std::string(what) + " is '" +
                     Printable(text, kMaxTextBytes) + "'; it may have " +
                     std::to_string(kMaxTextBytes) + " printable characters");
    }
  }
  for (const std::string* text : {&info.unfit().message(), &info.unfit().hint()}) {
    if (text->size() > kMaxDetailBytes || !IsPrintable(*text)) {
      return BadInfo("a node that says why it is unfit in other than " +
                     std::to_string(kMaxDetailBytes) + " printable characters");
    }
  }
  if (info.incarnation() == 0) return BadInfo("a node without incarnation");
  if (info.memory_bytes() == 0) return BadInfo("a node without memory");
  if (info.memory_bytes() > kMaxBytes || info.fixed_bytes() > kMaxBytes ||
      info.host_memory_bytes() > kMaxBytes) {
    return BadInfo("a node with more memory than any machine has");
  }
  RETURN_IF_ERROR(CheckDevices(info));
  if (info.threads() > kMaxThreads) {
    return BadInfo("a node with " + std::to_string(info.threads()) + " threads; at most " +
                   std::to_string(kMaxThreads));
  }
  if (!IsWithin(info.read_bytes_per_s(), kMaxBytesPerSecond) ||
      !IsWithin(info.flops_per_s(), kMaxFlops)) {
    return BadInfo("a node with speeds that no machine has (read_bytes_per_s " +
                   std::to_string(info.read_bytes_per_s()) + ", flops_per_s " +
                   std::to_string(info.flops_per_s()) + ")");
  }
  return ParseDialled(info.address()).status();
}

absl::Status CleanMessage(v1::WorkerMessage* message) {
  switch (message->kind_case()) {
    case v1::WorkerMessage::kHeartbeat:
      return CleanHeartbeat(message->mutable_heartbeat());
    case v1::WorkerMessage::kPeerMeasured:
      return CleanMeasure(message->mutable_peer_measured());
    case v1::WorkerMessage::kLoadProgress:
      if (message->load_progress().has_error()) {
        CleanError(message->mutable_load_progress()->mutable_error());
      }
      break;
    case v1::WorkerMessage::kFenceAck:
      if (message->fence_ack().has_error()) {
        CleanError(message->mutable_fence_ack()->mutable_error());
      }
      break;
    case v1::WorkerMessage::kLinkFault:
      if (message->link_fault().has_error()) {
        CleanError(message->mutable_link_fault()->mutable_error());
      }
      break;
    case v1::WorkerMessage::kLayersComputed:
      if (message->layers_computed().has_error()) {
        CleanError(message->mutable_layers_computed()->mutable_error());
      }
      break;
    case v1::WorkerMessage::kCacheContents:
      return CleanContents(message->mutable_cache_contents());
    case v1::WorkerMessage::kLayerKept:
      return CleanKept(message->mutable_layer_kept());
    default:
      break;
  }
  return absl::OkStatus();
}

}  // namespace strata
