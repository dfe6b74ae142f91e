// Between members.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <functional>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "common/doctor/finding_list.h"
#include "common/doctor/findings.h"
#include "common/units.h"

namespace strata::doctor {
namespace {

using Pair = std::pair<std::string, std::string>;

std::string HostOfAddress(const std::string& address) {
  return address.substr(0, address.rfind(':'));
}
std::string PortOf(const std::string& address) {
  const size_t colon = address.rfind(':');
  return colon == std::string::npos ? address : address.substr(colon + 1);
}
bool IsLoopbackHost(const std::string& host) {
  return host.starts_with("127.") || host == "[::1]" || host == "::1" || host == "localhost";
}

std::string OpenPort(const std::string& node, const std::string& address) {
  const std::string port = PortOf(address);
  return "`ss -ltn 'sport = :" + port + "'` on the machine of " + Named(node) +
         " says whether it listens; then open TCP port " + port +
         " in its firewall, such as `ufw allow " + port + "/tcp`";
}

// The cause of an error of dialling: what was found below gRPC, where there is that.
std::string CauseOf(const v1::ErrorDetail& error) {
  const auto cause = error.facts().find("cause");
  return cause != error.facts().end() && !cause->second.empty() ? cause->second : error.reason();
}

bool IsOfFirewall(const std::string& cause) {
  return cause == "CONNECTION_REFUSED" || cause == "CONNECTION_TIMED_OUT" || cause == "NO_ROUTE";
}

// All who dial `to` fail alike, or one does for a cause that is the same for all.
void TellOf(const std::string& to, const v1::LinkFacts& link, const std::string& who,
            FindingList* out) {
  const std::string cause = CauseOf(link.error());
  const std::string at = Named(to) + " at " + link.address();
  const std::string refused = who + " cannot reach " + at;
  if (!to.empty() && IsLoopbackHost(HostOfAddress(link.address())) && IsOfFirewall(cause)) {
    out->Error(
        "ADVERTISE_LOOPBACK", to,
        Named(to) + " advertises " + link.address() +
            ", an address that only its own machine knows",
        "start it with --advertise of an address that others dial, HOST:" + PortOf(link.address()),
        {.measured = cause});
  } else if (cause == "CONNECTION_REFUSED") {
    out->Error("PORT_CLOSED", to, refused + ": connection refused", OpenPort(to, link.address()),
               {.measured = cause});
  } else if (cause == "CONNECTION_TIMED_OUT") {
    out->Error("PORT_SILENT", to,
               refused + ": what is sent there vanishes, as in a firewall that drops it",
               OpenPort(to, link.address()), {.measured = cause});
  } else if (cause == "NO_ROUTE" || cause == "NAME_NOT_RESOLVED") {
    out->Error("ADDRESS_UNREACHABLE", to, refused + ": " + link.error().message(),
               to.empty()
                   ? "mend --coordinator of the worker, or that name or route"
                   : "start it with --advertise HOST:PORT that others can dial, or mend that "
                     "name or route",
               {.measured = cause});
  } else if (cause == "WRONG_NODE" || cause == "NO_GRPC") {
    out->Error(
        "ADVERTISE_WRONG", to,
        "at " + link.address() + ", where " + Named(to) + " is said to be, somebody else answers",
        to.empty() ? "mend --coordinator of the worker"
                   : "start it with --advertise of its own address",
        {.measured = link.error().message()});
  } else if (const std::string kind = CertificateKind(cause); !kind.empty()) {
    out->Error(
        kind, to, refused + ": " + link.error().message(),
        link.error().hint().empty() ? "docs/OPERATIONS.md, Certificates" : link.error().hint(),
        {.measured = cause});
  } else {
    out->Error("NODE_SILENT", to, refused + ": " + link.error().message(),
               "its log says what it waits for; `systemctl restart strata-worker` there",
               {.measured = cause});
  }
}

class Links {
 public:
  Links(const v1::ClusterFacts& facts, FindingList* out) : out_(out) {
    std::set<std::string> lost;
    for (const v1::Node& node : facts.nodes()) {
      if (node.state() == "lost") {
        lost.insert(node.name());
      } else {
        alive_.insert(node.name());
      }
    }
    for (const v1::LinkFacts& link : facts.links()) {
      if (!lost.contains(link.to()) && !lost.contains(link.from())) {
        links_[{link.from(), link.to()}] = &link;
      }
    }
  }

  void JudgePorts() {
    std::map<std::string, std::vector<const v1::LinkFacts*>> by_target;
    for (const auto& [pair, link] : links_) by_target[pair.second].push_back(link);
    for (const auto& [to, links] : by_target) {
      const auto failed = std::count_if(links.begin(), links.end(),
                                        [](const auto* link) { return link->has_error(); });
      if (failed == 0) {
        continue;
      }
      const auto first = std::find_if(links.begin(), links.end(),
                                      [](const auto* link) { return link->has_error(); });
      if (static_cast<size_t>(failed) == links.size()) {
        const std::string who = links.size() == 1 ? Named(links.front()->from())
                                                  : std::string("nobody of those who dial it");
        TellOf(to, **first, links.size() == 1 ? who : "each other member", out_);
        continue;
      }
      for (const v1::LinkFacts* link : links) {
        if (link->has_error()) TellOfPair(*link);
      }
    }
  }

  void JudgeSpeed(const Limits& limits) {
    std::set<Pair> told;
    TellGroups(
        "LINK_LOSSY", &told,
        [&](const v1::LinkFacts& link) {
          return link.segments_again() >= limits.lost_segments &&
                 static_cast<double>(link.segments_again()) >
                     limits.lost_share * static_cast<double>(link.segments());
        },
        [&](const v1::LinkFacts& link) {
          return Measure{std::to_string(link.segments_again()) + " of " +
                             std::to_string(link.segments()) + " segments sent again",
                         Number(limits.lost_share * 100) + " %"};
        },
        "loses packets, and each of them holds up a step by 200 ms or more",
        "`ethtool -S DEVICE` and `ip -s link` count errors at both ends: change cable or port, or "
        "look at the switch and the radio between");
    TellGroups(
        "LINK_SLOW", &told,
        [&](const v1::LinkFacts& link) {
          return link.bytes_per_s() > 0 && link.bytes_per_s() < limits.bytes_per_s;
        },
        [&](const v1::LinkFacts& link) {
          return Measure{Rate(link.bytes_per_s()), Rate(limits.bytes_per_s)};
        },
        "is slow: activations of prompts wait for it",
        "`ethtool DEVICE` says the speed that both ends agreed on, `tc qdisc` whether it is "
        "limited; use a wired link of 1 Gbit/s or more");
    TellGroups(
        "LINK_SLOWER_THAN_PLANNED", &told,
        [&](const v1::LinkFacts& link) {
          return link.bytes_per_s() > 0 && link.bytes_per_s() < limits.planned_from &&
                 link.bytes_per_s() < limits.planned_share * link.planned_bytes_per_s();
        },
        [&](const v1::LinkFacts& link) {
          return Measure{Rate(link.bytes_per_s()),
                         Rate(link.planned_bytes_per_s()) + " when layers were placed"};
        },
        "is slower than placing layers went by",
        "`ethtool DEVICE` says whether the link has fallen back; where it stays so, `strata model "
        "move M` places layers anew");
    TellGroups(
        "LINK_FAR", &told,
        [&](const v1::LinkFacts& link) { return link.round_trip_ms() > limits.round_trip_ms; },
        [&](const v1::LinkFacts& link) {
          return Measure{Number(link.round_trip_ms()) + " ms there and back",
                         Number(limits.round_trip_ms) + " ms"};
        },
        "takes long: each token waits for it once for each stage",
        "use machines of one network; Wi-Fi: switch off its power saving, `iw DEVICE set "
        "power_save off`");
  }

 private:
  static std::string Number(double value) {
    char text[32];
    std::snprintf(text, sizeof(text), "%.3g", value);
    return text;
  }
  static std::string Rate(double bytes_per_s) {
    return FormatSize(static_cast<uint64_t>(bytes_per_s)) + "/s";
  }

  bool Works(const std::string& from, const std::string& to) const {
    const auto found = links_.find({from, to});
    if (found != links_.end()) {
      return !found->second->has_error();
    }
    return to.empty() && alive_.contains(from);  // Its control stream is open.
  }
  bool Fails(const std::string& from, const std::string& to) const {
    const auto found = links_.find({from, to});
    return found != links_.end() && found->second->has_error();
  }

  // Others reach `link.to`.
  void TellOfPair(const v1::LinkFacts& link) {
    const std::string cause = CauseOf(link.error());
    if (!IsOfFirewall(cause)) {
      TellOf(link.to(), link, Named(link.from()), out_);
    } else if (Works(link.to(), link.from())) {
      out_->Error("FIREWALL_ONE_WAY", link.to(),
                  Named(link.from()) + " cannot reach " + Named(link.to()) + " at " +
                      link.address() + ", which reaches it and which others reach",
                  "let " + Named(link.from()) + " through to TCP port " + PortOf(link.address()) +
                      " in the firewall of " + Named(link.to()) +
                      " (`nft list ruleset`, `ufw status`), or out of its own",
                  {.measured = cause});
    } else if (!Fails(link.to(), link.from()) || link.from() < link.to()) {
      out_->Error("LINK_BLOCKED", link.to(),
                  Named(link.from()) + " and " + Named(link.to()) +
                      " do not reach each other, and others reach both",
                  "let both through to each other in the firewalls between (`nft list ruleset`), "
                  "or mend the route (`ip route get`)",
                  {.measured = cause});
    }
  }

  // One finding for a node all of whose links are so; one for each other link.
  void TellGroups(std::string_view kind, std::set<Pair>* told,
                  const std::function<bool(const v1::LinkFacts&)>& bad,
                  const std::function<Measure(const v1::LinkFacts&)>& measure,
                  const std::string& is, const std::string& remedy) {
    std::map<std::string, std::vector<const v1::LinkFacts*>> of_node;
    std::map<std::string, size_t> good;
    std::vector<const v1::LinkFacts*> all;
    for (const auto& [pair, link] : links_) {
      // What is on one machine has no link.
      if (link->has_error() || told->contains(pair) ||
          IsLoopbackHost(HostOfAddress(link->address()))) {
        continue;
      }
      if (!bad(*link)) {
        ++good[pair.first];
        ++good[pair.second];
        continue;
      }
      all.push_back(link);
      of_node[pair.first].push_back(link);
      of_node[pair.second].push_back(link);
    }
    std::set<const v1::LinkFacts*> grouped;
    const auto tell_node = [&](const std::string& node,
                               const std::vector<const v1::LinkFacts*>& links) {
      if (good.contains(node) || links.size() < 2 || grouped.contains(links.front())) return;
      const v1::LinkFacts* worst =
          *std::min_element(links.begin(), links.end(), [](const auto* a, const auto* b) {
            return std::pair(a->bytes_per_s(), -a->round_trip_ms()) <
                   std::pair(b->bytes_per_s(), -b->round_trip_ms());
          });
      out_->Warn(kind, node, "each link of " + Named(node) + " " + is, remedy, measure(*worst));
      grouped.insert(links.begin(), links.end());
    };
    for (const auto& [node, links] : of_node) {
      if (!node.empty()) tell_node(node, links);
    }
    if (of_node.contains("")) tell_node("", of_node.at(""));
    for (const v1::LinkFacts* link : all) {
      told->insert({link->from(), link->to()});
      if (!grouped.contains(link)) {
        out_->Warn(kind, link->from(),
                   "the link from " + Named(link->from()) + " to " + Named(link->to()) + " " + is,
                   remedy, measure(*link));
      }
    }
  }

  FindingList* const out_;
  std::set<std::string> alive_;
  std::map<Pair, const v1::LinkFacts*> links_;
};

void JudgeRefused(const v1::ClusterFacts& facts, FindingList* out) {
  std::set<std::string> alive;
  for (const v1::Node& node : facts.nodes()) {
    if (node.state() != "lost") alive.insert(node.name());
  }
  for (const v1::RefusedFacts& refused : facts.refused()) {
    const v1::ErrorDetail& error = refused.error();
    if (error.reason() == "NAME_TAKEN") {
      out->Error("NAME_TAKEN", refused.node(),
                 "another worker, at " + refused.address() + ", wants to be " +
                     Named(refused.node()) + " too",
                 "start it with a --name of its own");
      continue;
    }
    if (!refused.node().empty() && alive.contains(refused.node())) {
      continue;  // It came in since.
    }
    const std::string cause = CauseOf(error);
    if (error.reason() == "ADVERTISED_ADDRESS") {
      v1::LinkFacts link;
      link.set_to(refused.node());
      link.set_address(refused.address());
      *link.mutable_error() = error;
      TellOf(refused.node(), link, "the coordinator", out);
      continue;
    }
    const std::string kind = cause == "VERSION_SKEW" ? cause : CertificateKind(cause);
    const std::string who = refused.node().empty() ? "somebody who connected to the coordinator"
                                                   : Named(refused.node());
    out->Error(kind.empty() ? "JOIN_REFUSED" : kind, refused.node(),
               who + " was refused " +
                   FormatDuration(std::chrono::seconds(static_cast<int64_t>(refused.age_s()))) +
                   " ago: " + error.message(),
               error.hint().empty() ? "its log says what it wants" : error.hint());
  }
}

}  // namespace

void JudgeLinks(const v1::ClusterFacts& facts, const Limits& limits, FindingList* out) {
  Links links(facts, out);
  links.JudgePorts();
  links.JudgeSpeed(limits);
  JudgeRefused(facts, out);
}

}  // namespace strata::doctor
