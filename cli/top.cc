#include "cli/top.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <ostream>
#include <vector>

#include "cli/documents.h"
#include "cli/tables.h"
#include "common/printable.h"
#include "common/units.h"
#include "strata/v1/admin.pb.h"

namespace strata::cli {
namespace {

using std::chrono::duration;
using std::chrono::milliseconds;

constexpr uint64_t kShareWidth = 20;

Json OrNull(std::optional<double> value) { return value.has_value() ? Json(*value) : Json(); }

std::string OrDash(std::optional<double> value) {
  return value.has_value() ? Rounded(*value) : "-";
}

// "[#####...............]  25 %".
std::string UseBar(uint64_t part, uint64_t whole) {
  if (whole == 0) {
    return "-";
  }
  const double share = static_cast<double>(std::min(part, whole)) / static_cast<double>(whole);
  // What is in use at all shows.
  const uint64_t filled = std::clamp<uint64_t>(static_cast<uint64_t>(share * kShareWidth),
                                               part > 0 ? 1 : 0, kShareWidth);
  std::string percent = std::to_string(static_cast<int>(share * 100));
  percent.insert(0, 3 - std::min<size_t>(3, percent.size()), ' ');
  return "[" + std::string(filled, '#') + std::string(kShareWidth - filled, '.') + "] " + percent +
         " %";
}

// Request ids are each API key's own.
std::string NameOf(const std::string& request_id, const std::string& key) {
  return key + "\n" + request_id;
}

void PrintSummary(const v1::GetStatusResponse& status, const TokenRates& rates,
                  const std::string& coordinator, std::ostream* out) {
  std::map<std::string, int> states;
  for (const v1::Session& session : status.sessions()) {
    ++states[session.state()];
  }
  *out << "Strata " << Printable(status.version()) << " at " << coordinator << ", up "
       << FormatDuration(milliseconds(static_cast<int64_t>(status.uptime_s() * 1e3))) << "; "
       << Counted(static_cast<uint64_t>(status.sessions_size()), "request");
  const char* before = ": ";
  for (const auto& [state, count] : states) {
    *out << before << count << " " << state;
    before = ", ";
  }
  if (rates.total().has_value()) {
    *out << "; " << Rounded(*rates.total()) << " tokens/s";
  }
  *out << "\n";
}

void PrintNodeUse(const v1::GetStatusResponse& status, std::ostream* out) {
  Table table({"NODE", "STATE", "DEVICE", "MEMORY IN USE", ">OF", ">READS", ">COMPUTES", "HOLDS"});
  for (const v1::Node& node : status.nodes()) {
    std::string holds;
    for (const std::string& model : node.models()) {
      holds += (holds.empty() ? "" : ", ") + model;
    }
    table.AddRow({node.name(), node.state(), DeviceText(node),
                  UseBar(node.used_bytes(), node.memory_bytes()), FormatSize(node.memory_bytes()),
                  ReadsText(node), ComputesText(node), holds.empty() ? "-" : holds});
  }
  *out << "\n";
  table.Print(out);
}

void PrintKvUse(const v1::GetStatusResponse& status, std::ostream* out) {
  Table table({"MODEL", ">STAGE", "GROUP", "KV IN USE", ">PAGES", ">LIVE", ">CACHED", ">FENCED"});
  for (const v1::KvUse& kv : status.kv()) {
    table.AddRow({kv.model(), std::to_string(kv.stage()), kv.group(),
                  UseBar(kv.total() - std::min(kv.free(), kv.total()), kv.total()),
                  std::to_string(kv.total()), std::to_string(kv.live()),
                  std::to_string(kv.cached()), std::to_string(kv.fenced())});
  }
  *out << "\n";
  table.Print(out);
}

void PrintStages(const v1::GetStatusResponse& status, const TokenRates& rates, std::ostream* out) {
  Table table({"MODEL", ">STAGE", "NODE", "BUSY", ">BUBBLES", ">ROWS/S"});
  for (const v1::StageUse& stage : status.stages()) {
    const std::optional<StageRate> rate = rates.Of(stage);
    const auto thousandths = [](double share) {
      return static_cast<uint64_t>(std::llround(share * 1000));
    };
    table.AddRow({stage.model(), std::to_string(stage.stage()), stage.node(),
                  rate.has_value() ? UseBar(thousandths(rate->busy), 1000) : "-",
                  rate.has_value() ? std::to_string(thousandths(rate->bubble) / 10) + " %" : "-",
                  rate.has_value() ? Rounded(rate->rows_per_s) : "-"});
  }
  *out << "\n";
  table.Print(out);
}

void PrintRequests(const v1::GetStatusResponse& status, const TokenRates& rates,
                   std::ostream* out) {
  std::vector<std::string> head = {"REQUEST",    "MODEL",    "STATE",     ">PROMPT",
                                   ">GENERATED", ">AT MOST", ">TOKENS/S", ">AGE"};
  const bool drafts = AnyDrafts(status.sessions());
  if (drafts) head.push_back(">DRAFTS");
  Table table(head);
  for (const v1::Session& session : status.sessions()) {
    std::vector<std::string> row = {
        session.request_id(),
        session.model(),
        session.state(),
        std::to_string(session.prompt_tokens()),
        std::to_string(session.generated_tokens()),
        std::to_string(session.max_tokens()),
        OrDash(rates.Of(session.request_id(), session.key())),
        FormatDuration(milliseconds(static_cast<int64_t>(session.age_ms())))};
    if (drafts) row.push_back(DraftsOf(session));
    table.AddRow(std::move(row));
  }
  *out << "\n";
  table.Print(out);
}

}  // namespace

void TokenRates::Update(const v1::GetStatusResponse& status,
                        std::chrono::steady_clock::time_point now) {
  std::map<std::string, uint32_t> generated;
  rates_.clear();
  total_.reset();
  const double seconds = at_.has_value() ? duration<double>(now - *at_).count() : 0;
  double tokens = 0;
  for (const v1::Session& session : status.sessions()) {
    const uint32_t count = session.generated_tokens();
    const std::string name = NameOf(session.request_id(), session.key());
    generated[name] = count;
    const auto before = generated_.find(name);
    // Fewer than before: another request of the same id.
    const bool known = before != generated_.end() && before->second <= count;
    const uint32_t fresh = count - (known ? before->second : 0);
    tokens += fresh;
    if (known && seconds > 0) {
      rates_[name] = fresh / seconds;
    }
  }
  if (seconds > 0) {
    total_ = tokens / seconds;
  }
  generated_ = std::move(generated);
  UpdateStages(status, seconds);
  at_ = now;
}

void TokenRates::UpdateStages(const v1::GetStatusResponse& status, double seconds) {
  std::map<Stage, StageRate> counted;
  stage_rates_.clear();
  for (const v1::StageUse& stage : status.stages()) {
    const Stage name(stage.model(), stage.stage());
    const StageRate now{stage.compute_s(), stage.bubble_s(), static_cast<double>(stage.rows())};
    counted[name] = now;
    const auto before = counted_.find(name);
    // Less than before: it was loaded anew.
    if (seconds > 0 && before != counted_.end() && before->second.busy <= now.busy &&
        before->second.rows_per_s <= now.rows_per_s) {
      const auto rate = [seconds](double from, double to) { return (to - from) / seconds; };
      // Steps are counted once they are committed, so a share may seem to be more than all.
      stage_rates_[name] = {std::clamp(rate(before->second.busy, now.busy), 0.0, 1.0),
                            std::clamp(rate(before->second.bubble, now.bubble), 0.0, 1.0),
                            rate(before->second.rows_per_s, now.rows_per_s)};
    }
  }
  counted_ = std::move(counted);
}

std::optional<StageRate> TokenRates::Of(const v1::StageUse& stage) const {
  const auto it = stage_rates_.find({stage.model(), stage.stage()});
  return it == stage_rates_.end() ? std::nullopt : std::optional<StageRate>(it->second);
}

std::optional<double> TokenRates::Of(const std::string& request_id, const std::string& key) const {
  const auto it = rates_.find(NameOf(request_id, key));
  return it == rates_.end() ? std::nullopt : std::optional<double>(it->second);
}

Json TopDocument(const v1::GetStatusResponse& status, const TokenRates& rates) {
  Json document = StatusDocument(status);
  for (int i = 0; i < status.nodes_size(); ++i) {
    Json& node = document["nodes"][static_cast<size_t>(i)];
    node["used_bytes"] = status.nodes(i).used_bytes();
    node["models"] =
        std::vector<std::string>(status.nodes(i).models().begin(), status.nodes(i).models().end());
  }
  for (int i = 0; i < status.sessions_size(); ++i) {
    document["sessions"][static_cast<size_t>(i)]["tokens_per_s"] =
        OrNull(rates.Of(status.sessions(i).request_id(), status.sessions(i).key()));
  }
  for (int i = 0; i < status.stages_size(); ++i) {
    const std::optional<StageRate> rate = rates.Of(status.stages(i));
    Json& stage = document["stages"][static_cast<size_t>(i)];
    stage["busy_share"] = rate.has_value() ? Json(rate->busy) : Json();
    stage["bubble_share"] = rate.has_value() ? Json(rate->bubble) : Json();
    stage["rows_per_s"] = rate.has_value() ? Json(rate->rows_per_s) : Json();
  }
  document["tokens_per_s"] = OrNull(rates.total());
  return document;
}

void PrintTop(const v1::GetStatusResponse& status, const TokenRates& rates,
              const std::string& coordinator, std::ostream* out) {
  PrintSummary(status, rates, coordinator, out);
  for (const v1::Problem& problem : status.problems()) {
    *out << "! " << Printable(problem.what())
         << (problem.do_().empty() ? "" : "; do: " + Printable(problem.do_())) << "\n";
  }
  if (!status.nodes().empty()) {
    PrintNodeUse(status, out);
  }
  if (!status.models().empty()) {
    *out << "\n";
    PrintModels(status.models(), "", out);
  }
  if (!status.kv().empty()) {
    PrintKvUse(status, out);
  }
  if (!status.stages().empty()) {
    PrintStages(status, rates, out);
  }
  if (!status.sessions().empty()) {
    PrintRequests(status, rates, out);
  }
}

std::string Screen(const std::string& text, TerminalSize size) {
  std::vector<std::string> lines;
  for (size_t at = 0; at < text.size();) {
    const size_t end = std::min(text.find('\n', at), text.size());
    std::string line = text.substr(at, end - at);
    // Not within a character; columns are counted as characters.
    size_t columns = 0;
    for (size_t i = 0; i < line.size(); ++i) {
      if ((static_cast<unsigned char>(line[i]) & 0xC0) != 0x80 && ++columns > size.columns) {
        line.resize(i);
        break;
      }
    }
    lines.push_back(std::move(line));
    at = end + 1;
  }
  const size_t rows = std::max<size_t>(size.rows, 2);
  if (lines.size() > rows) {
    const std::string rest = "... " + Counted(lines.size() - (rows - 1), "more line");
    lines.resize(rows - 1);
    lines.push_back(rest.substr(0, size.columns));
  }
  std::string screen = "\x1b[H";
  for (size_t i = 0; i < lines.size(); ++i) {
    screen += (i == 0 ? "" : "\r\n") + lines[i] + "\x1b[K";
  }
  return screen + "\x1b[J";
}

}  // namespace strata::cli
