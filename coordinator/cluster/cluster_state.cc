#include "coordinator/cluster/cluster_state.h"

#include <algorithm>

#include "common/model/rank_outputs.h"
#include "common/status.h"
#include "common/units.h"

namespace strata {
namespace {

// A link that failed its measurement is no way at all.
constexpr PlannerLink kNoLink{1e9, 1.0};
// Before a link was measured: a cautious guess of a home network.
constexpr PlannerLink kUnmeasured{0.5, 1e8};
// Of a node that has not said how fast it is.
constexpr double kUnknownReadBytesPerS = 5e9;
constexpr double kUnknownFlopsPerS = 5e10;

double SpeedOr(double measured, double unknown) { return measured > 0 ? measured : unknown; }

absl::Status NoSuchNode(const std::string& name) {
  return Error(absl::StatusCode::kNotFound, "NODE_NOT_FOUND", "there is no node '" + name + "'")
      .Node(name)
      .Hint("see `strata node list`");
}

// By the host of its address: workers of one machine mostly have the same.
std::string MachineOf(const std::string& address) { return address.substr(0, address.rfind(':')); }

// Whether certificates are why the link does not work.
bool IsOfTls(const LinkMeasure& link) {
  const auto cause = link.error.facts().find("cause");
  return cause != link.error.facts().end() && cause->second.find("TLS") != std::string::npos;
}

}  // namespace

std::string ClusterState::StateOf(const NodeRecord& node) const {
  if (!node.alive) return "lost";
  if (node.unfit()) return "unfit";
  if (!node.placements.empty()) {
    const bool ready = std::all_of(node.placements.begin(), node.placements.end(),
                                   [](const auto& p) { return p.second.ready; });
    if (!ready) return "loading";
  }
  if (node.placements.empty() && !node.prepared.empty()) return "loading";
  if (node.draining || node.leaving()) return "draining";
  // From where it should be reached: the coordinator, whose link is noted here, and its peers.
  const auto broken = [](const NodeRecord& from, const std::string& to) {
    const auto it = from.links.find(to);
    return it != from.links.end() && !it->second.ok();
  };
  if (broken(node, "") || std::any_of(nodes_.begin(), nodes_.end(), [&](const auto& other) {
        return broken(other.second, node.info.name());
      })) {
    return "unreachable";
  }
  return node.placements.empty() ? "ready" : "serving";
}

absl::Status ClusterState::MayJoin(const v1::NodeInfo& info) const {
  const NodeRecord* old = Find(info.name());
  if (old != nullptr && old->alive && old->info.incarnation() != info.incarnation()) {
    return Error(absl::StatusCode::kAlreadyExists, "NAME_TAKEN",
                 "a live node at " + old->info.address() + " has the name '" + info.name() + "'")
        .Node(info.name())
        .Hint("give this worker another name with --name, or stop the other one");
  }
  return absl::OkStatus();
}

absl::Status ClusterState::Join(const v1::NodeInfo& info, TimePoint now) {
  RETURN_IF_ERROR(MayJoin(info));
  NodeRecord& node = nodes_[info.name()];
  node.info = info;
  node.alive = true;
  node.last_heartbeat = now;
  node.lease_end = now + options_.lease;
  node.lease_excused = false;
  node.heartbeat = v1::Heartbeat();
  if (info.has_unfit()) {
    *node.heartbeat.mutable_unfit() = info.unfit();
  }
  node.links.clear();
  node.measuring.clear();
  node.placements.clear();
  node.prepared.clear();
  for (auto& [name, other] : nodes_) {
    other.links.erase(info.name());
    other.measuring.erase(info.name());
  }
  holders_->OnJoined(info.name(), info.incarnation(), info.address());
  return absl::OkStatus();
}

void ClusterState::Restore(const v1::NodeInfo& info, bool draining, TimePoint now) {
  NodeRecord& node = nodes_[info.name()];
  node.info = info;
  node.draining = draining;
  node.last_heartbeat = now;
}

bool ClusterState::Heartbeat(const std::string& name, uint64_t incarnation,
                             const v1::Heartbeat& heartbeat, TimePoint now) {
  const auto it = nodes_.find(name);
  if (it == nodes_.end() || !it->second.alive || it->second.info.incarnation() != incarnation) {
    return false;
  }
  NodeRecord& node = it->second;
  const bool was_unfit = node.unfit();
  node.heartbeat = heartbeat;
  node.last_heartbeat = now;
  node.lease_end = now + options_.lease;
  node.lease_excused = false;
  return node.unfit() && !was_unfit;
}

bool ClusterState::Leave(const std::string& name, uint64_t incarnation) {
  const auto it = nodes_.find(name);
  if (it == nodes_.end() || !it->second.alive || it->second.info.incarnation() != incarnation) {
    return false;
  }
  it->second.alive = false;
  it->second.links.clear();
  ForgetMeasuresOf(name);
  holders_->OnLost(name);
  return true;
}

std::vector<std::string> ClusterState::Expire(TimePoint now) {
  const TimePoint before = last_expire_.value_or(now);
  const bool stalled = now - before > options_.heartbeat;
  last_expire_ = now;
  std::vector<std::string> lapsed;
  for (auto& [name, node] : nodes_) {
    const bool heard_since = node.last_heartbeat > before;
    if (stalled && !heard_since && !node.lease_excused) {
      node.lease_end = now + options_.lease;
      node.lease_excused = true;
    }
    if (node.alive && now > node.lease_end) {
      node.alive = false;
      node.links.clear();
      ForgetMeasuresOf(name);
      holders_->OnLost(name);
      lapsed.push_back(name);
    }
  }
  return lapsed;
}

absl::Status ClusterState::Remove(const std::string& name) {
  const NodeRecord* node = Find(name);
  if (node == nullptr) {
    return NoSuchNode(name);
  }
  if (!node->placements.empty() || !node->prepared.empty()) {
    const auto& held = node->placements.empty() ? node->prepared : node->placements;
    return Error(absl::StatusCode::kFailedPrecondition, "NODE_IN_USE",
                 "node '" + name + "' holds " + held.begin()->second.what)
        .Node(name)
        .Hint(
            "`strata model list` says where models are; unload that one first with `strata model "
            "unload NAME`, or use --force");
  }
  nodes_.erase(name);
  holders_->OnLost(name);
  for (auto& [other_name, other] : nodes_) {
    other.links.erase(name);
    other.measuring.erase(name);
  }
  return absl::OkStatus();
}

std::vector<std::string> ClusterState::Gone() const {
  std::vector<std::string> gone;
  for (const auto& [name, node] : nodes_) {
    if (!node.alive && node.placements.empty() && node.prepared.empty()) gone.push_back(name);
  }
  return gone;
}

std::vector<std::string> ClusterState::Forgettable(TimePoint now) const {
  std::vector<std::string> names;
  if (options_.forget_after <= nanoseconds(0)) {
    return names;
  }
  for (std::string& name : Gone()) {
    const NodeRecord& node = nodes_.at(name);
    if (!node.draining && now - node.last_heartbeat >= options_.forget_after) {
      names.push_back(std::move(name));
    }
  }
  return names;
}

// Nobody asks it, or is asked about it, any more.
void ClusterState::ForgetMeasuresOf(const std::string& name) {
  for (auto& [other_name, other] : nodes_) {
    other.measuring.erase(name);
  }
  nodes_.at(name).measuring.clear();
}

void ClusterState::BeginMeasure(const std::string& from, const std::string& to, TimePoint now) {
  nodes_.at(from).measuring.try_emplace(to, now);
}

std::optional<ClusterState::Owed> ClusterState::OwedMeasures(const NodeRecord& node) const {
  if (node.measuring.empty()) {
    return std::nullopt;
  }
  // One at a time: what was asked long ago is not owed for so long while others are answered.
  Owed owed{TimePoint::max(), {}};
  for (const auto& [peer, since] : node.measuring) {
    owed.since = std::min(owed.since, since);
    owed.peers.push_back(peer);
  }
  owed.since = std::max(owed.since, node.last_measured);
  return owed;
}

absl::Status ClusterState::SetDraining(const std::string& name, bool draining) {
  const auto it = nodes_.find(name);
  if (it == nodes_.end()) {
    return NoSuchNode(name);
  }
  it->second.draining = draining;
  return absl::OkStatus();
}

void ClusterState::SetLink(const std::string& from, const std::string& to,
                           const LinkMeasure& measure, TimePoint now) {
  const auto it = nodes_.find(from);
  if (it == nodes_.end() || !it->second.alive) {
    return;
  }
  if (!to.empty()) {
    it->second.last_measured = now;
    const NodeRecord* peer = Find(to);
    if (peer == nullptr || !peer->alive || peer->info.incarnation() != measure.peer_incarnation) {
      return;
    }
    it->second.measuring.erase(to);
  }
  it->second.links[to] = measure;
}

void ClusterState::SetPlacement(const std::string& name, uint64_t deployment,
                                NodeRecord::Placement placement) {
  if (const auto it = nodes_.find(name); it != nodes_.end()) {
    it->second.placements[deployment] = std::move(placement);
  }
}

void ClusterState::ClearPlacement(uint64_t deployment) {
  for (auto& [name, node] : nodes_) {
    node.placements.erase(deployment);
  }
}

void ClusterState::SetPrepared(const std::string& name, uint64_t deployment,
                               NodeRecord::Placement placement) {
  if (const auto it = nodes_.find(name); it != nodes_.end()) {
    it->second.prepared[deployment] = std::move(placement);
  }
}

void ClusterState::ClearPrepared(uint64_t deployment) {
  for (auto& [name, node] : nodes_) {
    node.prepared.erase(deployment);
  }
}

const NodeRecord* ClusterState::Find(const std::string& name) const {
  const auto it = nodes_.find(name);
  return it == nodes_.end() ? nullptr : &it->second;
}

PlannerLink ClusterState::LinkBetween(const std::string& from, const std::string& to) const {
  const NodeRecord* node = Find(from);
  if (node == nullptr) {
    return kUnmeasured;
  }
  const auto it = node->links.find(to);
  if (it == node->links.end()) {
    return kUnmeasured;
  }
  if (!it->second.ok()) {
    return kNoLink;
  }
  return {it->second.latency_ms, std::max(1.0, it->second.bytes_per_s)};
}

PlannerCluster ClusterState::Snapshot(uint64_t without_deployment) const {
  PlannerCluster cluster;
  std::vector<std::string> names;
  for (const auto& [name, node] : nodes_) {
    if (!node.alive || node.unfit() || node.draining || node.leaving()) {
      continue;
    }
    // What the process itself uses is of the host's memory.
    const bool own_memory = node.info.host_memory_bytes() != 0;
    uint64_t used = own_memory ? 0 : node.info.fixed_bytes();
    uint64_t host_used = own_memory ? node.info.fixed_bytes() : 0;
    for (const auto* placements : {&node.placements, &node.prepared}) {
      for (const auto& [deployment, placement] : *placements) {
        used += deployment == without_deployment ? 0 : placement.bytes;
        host_used += deployment == without_deployment ? 0 : placement.host_bytes;
      }
    }
    PlannerNode planned;
    planned.name = name;
    planned.incarnation = node.info.incarnation();
    planned.device = node.info.device();
    planned.device_name = node.info.device_name();
    planned.numerics = node.info.numerics();
    planned.free_bytes =
        node.info.memory_bytes() > used ? node.info.memory_bytes() - used : uint64_t{0};
    for (const v1::NodeDevice& device : node.info.devices()) {
      planned.devices.push_back({.index = device.index(),
                                 .of_stage = {.share = {device.share_begin(), device.share_end()},
                                              .memory_bytes = device.memory_bytes()}});
    }
    if (own_memory) {
      const uint64_t all = node.info.host_memory_bytes();
      planned.host_free_bytes = all > host_used ? all - host_used : uint64_t{0};
    }
    planned.read_bytes_per_s = SpeedOr(node.info.read_bytes_per_s(), kUnknownReadBytesPerS);
    planned.flops_per_s = SpeedOr(node.info.flops_per_s(), kUnknownFlopsPerS);
    if (node.heartbeat.has_disk_free_bytes()) {
      planned.cache_bytes = node.heartbeat.disk_free_bytes() + node.heartbeat.cache_bytes();
      planned.disk_free_bytes = node.heartbeat.disk_free_bytes();
    }
    planned.ranks = node.info.ranks() && node.info.backend() == "cpu";
    planned.machine = MachineOf(node.info.address());
    cluster.nodes.push_back(std::move(planned));
    names.push_back(name);
  }
  const size_t n = names.size();
  cluster.links.assign(n + 1, std::vector<PlannerLink>(n + 1));
  for (size_t i = 0; i < n; ++i) {
    for (size_t j = 0; j < n; ++j) {
      cluster.links[i][j] = i == j ? PlannerLink{0, 1e12} : LinkBetween(names[i], names[j]);
    }
    // Measured from the coordinator; taken as the same both ways.
    cluster.links[i][n] = cluster.links[n][i] = LinkBetween(names[i], "");
  }
  return cluster;
}

void ClusterState::SetStandbyBytes(const std::map<std::string, uint64_t>& bytes) {
  for (auto& [name, node] : nodes_) {
    const auto it = bytes.find(name);
    node.standby_bytes = it == bytes.end() ? 0 : it->second;
  }
}

v1::Node ClusterState::Describe(const NodeRecord& node, TimePoint now) const {
  v1::Node out;
  out.set_name(node.info.name());
  out.set_state(StateOf(node));
  out.set_address(node.info.address());
  out.set_memory_bytes(node.info.memory_bytes());
  out.set_backend(node.info.backend());
  out.set_isa(node.info.isa());
  out.set_incarnation(node.info.incarnation());
  out.set_threads(node.info.threads());
  if (node.info.host_memory_bytes() != 0) {
    out.set_used_bytes(node.heartbeat.device_used_bytes());
    out.set_host_memory_bytes(node.info.host_memory_bytes());
    out.set_host_used_bytes(node.heartbeat.used_bytes());
  } else {
    out.set_used_bytes(node.heartbeat.used_bytes());
  }
  for (const v1::NodeDevice& device : node.info.devices()) {
    v1::Node::Device& described = *out.add_devices();
    described.set_index(device.index());
    described.set_name(device.name());
    described.set_memory_bytes(device.memory_bytes());
    described.set_share((device.share_end() - device.share_begin()) /
                        static_cast<double>(kShareParts));
    described.set_read_bytes_per_s(device.read_bytes_per_s());
  }
  out.set_device(node.info.device());
  out.set_device_name(node.info.device_name());
  if (node.unfit()) {
    out.set_unfit(node.heartbeat.unfit().message());
  }
  out.set_read_bytes_per_s(node.info.read_bytes_per_s());
  out.set_flops_per_s(node.info.flops_per_s());
  out.set_version(node.info.version());
  out.set_platform(node.info.platform());
  out.set_cache_bytes(node.heartbeat.cache_bytes());
  out.set_fetched_bytes(node.heartbeat.fetched_bytes());
  out.set_fetched_from_workers_bytes(node.heartbeat.fetched_from_workers_bytes());
  out.set_sent_bytes(node.heartbeat.sent_bytes());
  out.set_bad_blobs(node.heartbeat.bad_blobs());
  out.set_standby_bytes(node.standby_bytes);
  const auto [blobs, layers] = holders_->CountsOf(node.info.name());
  out.set_cached_blobs(blobs);
  out.set_packed_layers(layers);
  if (node.heartbeat.has_disk_free_bytes()) {
    out.set_disk_free_bytes(node.heartbeat.disk_free_bytes());
  }
  if (node.alive) {
    out.set_heartbeat_age_ms(ToMs(now - node.last_heartbeat));
  }
  for (const auto& [deployment, placement] : node.placements) {
    out.add_models(placement.what);
  }
  for (const auto& [deployment, placement] : node.prepared) {
    out.add_models(placement.what);
  }
  for (const auto& [peer, measure] : node.links) {
    v1::Node::Link* link = out.add_links();
    link->set_peer(peer);
    link->set_latency_ms(measure.latency_ms);
    link->set_bytes_per_s(measure.bytes_per_s);
    link->set_error(measure.error.message());
  }
  return out;
}

std::vector<v1::Node> ClusterState::Describe(TimePoint now) const {
  std::vector<v1::Node> nodes;
  for (const auto& [name, node] : nodes_) {
    nodes.push_back(Describe(node, now));
  }
  return nodes;
}

void ClusterState::AddProblems(const ModelOnFn& model_on, ProblemList* problems) const {
  for (const auto& [name, node] : nodes_) {
    const std::string& address = node.info.address();
    if (!node.alive) {
      if (const std::string model = model_on(name); !model.empty()) {
        problems->Add("node " + name + " (" + address + ") is lost",
                      "start strata-worker there again; `strata model load " + model +
                          "` places the model on other nodes");
        continue;
      }
      problems->AddOne(
          {"nodes are lost", "start strata-worker there again, or `strata node remove --gone`"},
          name, "node " + name + " (" + address + ") is lost",
          "start strata-worker there again, or `strata node remove " + name + "`");
      continue;
    }
    if (node.unfit()) {
      const v1::ErrorDetail& why = node.heartbeat.unfit();
      const std::string model = model_on(name);
      problems->AddOne(
          {"nodes cannot compute any more", "restart strata-worker on each"}, name,
          "node " + name + " (" + address + ") cannot compute any more: " + why.message(),
          why.hint() + (model.empty() ? ""
                                      : "; `strata model load " + model +
                                            "` places the model on other nodes"));
    }
    if (node.heartbeat.has_disk_free_bytes() &&
        node.heartbeat.disk_free_bytes() < options_.least_free_disk_bytes) {
      problems->AddOne(
          {"nodes have a full disk",
           "make room on the disks of their --data-dir: no model can be loaded there "
           "that is not kept already"},
          name,
          "the disk of --data-dir of node " + name + " has " +
              FormatSize(node.heartbeat.disk_free_bytes()) + " free",
          "make room there: no model can be loaded on " + name + " that is not kept already");
    }
    for (const auto& [peer, link] : node.links) {
      if (link.ok()) {
        continue;
      }
      if (peer.empty()) {
        problems->AddOne({"nodes cannot be reached by the coordinator",
                          "open their ports in their firewalls, or start their workers with an "
                          "--advertise that the coordinator can dial"},
                         name,
                         "the coordinator cannot reach node " + name + " at " + address + ": " +
                             link.error.message(),
                         IsOfTls(link) ? link.error.hint()
                                       : "open that port in the firewall of " + name +
                                             ", or start its worker with an --advertise that the "
                                             "coordinator can dial");
        continue;
      }
      const NodeRecord* other = Find(peer);
      const std::string at = other != nullptr ? " at " + other->info.address() : "";
      const std::string hint = "open that port in the firewall of " + peer +
                               ", or start its worker with an --advertise that ";
      problems->AddOne({"nodes cannot reach " + peer + at, hint + "they can dial"}, name,
                       "node " + name + " (" + address + ") cannot reach " + peer + at + ": " +
                           link.error.message(),
                       IsOfTls(link) ? link.error.hint() : hint + name + " can dial");
    }
  }
}

}  // namespace strata
