#include "tests/sim/sim_clients.h"

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "common/status.h"
#include "tests/sim/exact_model.h"
#include "tests/sim/sim_coordinator.h"

namespace strata::sim {
namespace {

constexpr nanoseconds kRetryPause = milliseconds(300);
// Between the engine's clock and a client's.
constexpr nanoseconds kDeadlineSlack = milliseconds(1);

std::string Join(const std::vector<uint32_t>& tokens) {
  std::string text;
  for (const uint32_t token : tokens) {
    text += (text.empty() ? "" : " ") + std::to_string(token);
  }
  return text;
}

}  // namespace

struct SimClients::Client {
  ClientRequest request;
  size_t number = 0;
  bool sent = false;
  bool started = false;  // The newest attempt has had memory.
  bool ended = false;
  bool answered = false;
  uint64_t attempt = 0;           // Counts up; what an older one says is ignored.
  uint64_t coordinator_life = 0;  // Of the live attempt; 0: there is none.
  std::vector<uint32_t> tokens;   // Of the newest attempt.

  std::string Name() const { return "client " + std::to_string(number) + " (" + request.id + ")"; }
};

// Sinks must not call the engine, so what follows is an event of its own.
class SimClients::Sink : public SessionSink {
 public:
  Sink(SimClients* clients, std::shared_ptr<Client> client)
      : clients_(clients), client_(std::move(client)), attempt_(client_->attempt) {}

  void OnStarted(const StartedInfo& info) override { client_->started = true; }
  void OnRows(const RowsInfo& rows) override {}

  Verdict OnToken(const TokenInfo& token) override {
    if (live()) {
      if (token.index != client_->tokens.size()) {
        clients_->world().Fail(client_->Name() + " got token " + std::to_string(token.index) +
                               " after " + std::to_string(client_->tokens.size()));
      }
      client_->tokens.push_back(token.token.token_id());
    }
    return Verdict::kContinue;
  }

  void OnDone(const FinishInfo& info) override {
    if (live()) {
      clients_->OnDone(client_, info);
    }
  }

  void OnFailed(const absl::Status& status) override {
    if (live()) {
      clients_->OnAttemptFailed(client_, status, /*accepted=*/true);
    }
  }

 private:
  // What a process says in its end reaches nobody.
  bool live() const {
    return clients_->cluster_->coordinator->up() && !client_->ended && client_->attempt == attempt_;
  }

  SimClients* const clients_;
  const std::shared_ptr<Client> client_;
  const uint64_t attempt_;
};

SimClients::SimClients(Cluster* cluster, ModelSpec model)
    : cluster_(cluster), model_(std::move(model)) {}
SimClients::~SimClients() = default;

void SimClients::Add(const ClientRequest& request) {
  auto client = std::make_shared<Client>();
  client->request = request;
  client->number = clients_.size();
  clients_.push_back(client);
  world().events.At(request.at, [this, client] { Submit(client); });
  if (request.cancel_after.has_value()) {
    world().events.At(request.at + *request.cancel_after, [this, client] { Cancel(client); });
  }
  if (request.deadline_after.has_value()) {
    world().events.At(request.at + *request.deadline_after + kDeadlineSlack, [this, client] {
      const SimCoordinator& coordinator = *cluster_->coordinator;
      if (!client->ended && coordinator.up() && client->coordinator_life == coordinator.life()) {
        world().Fail(client->Name() + " waits past its deadline");
      }
    });
  }
}

void SimClients::Submit(const std::shared_ptr<Client>& client) {
  if (client->ended) {
    return;
  }
  const ClientRequest& wanted = client->request;
  SessionRequest request;
  request.key = "scope/" + wanted.id;
  request.request_id = wanted.id;
  request.prompt = wanted.prompt;
  request.max_tokens = wanted.max_tokens;
  request.priority = wanted.priority;
  request.guaranteed = wanted.guaranteed;
  request.params = wanted.params;
  request.stop_ids = wanted.stop_ids;
  if (wanted.held.has_value()) {
    request.constraint = std::make_shared<ScriptedConstraint>(*wanted.held);
  }
  if (wanted.deadline_after.has_value()) {
    request.deadline = wanted.at + *wanted.deadline_after;
  }
  if (wanted.replace && !client->sent &&
      cluster_->coordinator->Cancel(request.key, Error(absl::StatusCode::kAborted, "REPLACED",
                                                       "a newer request took its id"))) {
    world().Count(Rule::kReplaced);
  }
  client->sent = true;
  client->tokens.clear();
  client->started = false;
  ++client->attempt;
  client->coordinator_life = cluster_->coordinator->life();
  world().Tell([&] {
    return client->Name() + " asks for " + std::to_string(wanted.max_tokens) + " tokens after " +
           std::to_string(wanted.prompt.size());
  });
  const absl::Status status =
      cluster_->coordinator->Submit(std::move(request), std::make_shared<Sink>(this, client));
  if (!status.ok()) {
    OnAttemptFailed(client, status, /*accepted=*/false);
  }
}

void SimClients::Cancel(const std::shared_ptr<Client>& client) {
  if (client->ended) {
    return;
  }
  world().Tell([&] { return client->Name() + " cancels"; });
  if (client->coordinator_life != cluster_->coordinator->life() || !cluster_->coordinator->up()) {
    // Between two attempts, or its coordinator is gone: another client may have its id now.
    End(client, "is cancelled");
    world().Count(Rule::kCancelled);
    return;
  }
  cluster_->coordinator->Cancel("scope/" + client->request.id, absl::OkStatus());
}

void SimClients::OnCoordinatorLost(uint64_t life, nanoseconds notice) {
  for (const auto& client : clients_) {
    if (client->ended || client->coordinator_life != life) {
      continue;
    }
    world().After(notice, [this, client, life, attempt = client->attempt] {
      if (!client->ended && client->attempt == attempt && client->coordinator_life == life) {
        OnAttemptFailed(client,
                        Error(absl::StatusCode::kUnavailable, "COORDINATOR_LOST",
                              "the connection to the coordinator broke"),
                        /*accepted=*/true);
      }
    });
  }
}

void SimClients::OnAttemptFailed(const std::shared_ptr<Client>& client, const absl::Status& status,
                                 bool accepted) {
  client->coordinator_life = 0;
  CheckTokens(*client);
  CheckError(*client, status, accepted);
  const ClientRequest& request = client->request;
  // A model that is not loaded may be loaded again.
  const bool passes = absl::IsUnavailable(status) || ReasonOf(status) == "MODEL_NOT_LOADED";
  if (!passes || request.retries == 0) {
    End(client, "fails: " + ReasonOf(status));
    return;
  }
  --client->request.retries;
  world().Count(Rule::kSentAgain);
  world().Tell([&] { return client->Name() + " will ask again: " + ReasonOf(status); });
  world().After(kRetryPause, [this, client] { Submit(client); });
}

void SimClients::OnDone(const std::shared_ptr<Client>& client, const FinishInfo& info) {
  CheckTokens(*client);
  const ClientRequest& request = client->request;
  const std::vector<uint32_t>& tokens = client->tokens;
  const auto is_stop = [&request](uint32_t token) {
    return std::find(request.stop_ids.begin(), request.stop_ids.end(), token) !=
           request.stop_ids.end();
  };
  const auto stop = std::find_if(tokens.begin(), tokens.end(), is_stop);
  bool right = info.completion_tokens == tokens.size();
  const bool complete = request.held.has_value() && tokens.size() >= request.held->tokens;
  if (request.held.has_value() && info.reason != "cancelled") {
    right = right && (info.reason == "stop") == complete &&
            (!complete || tokens.size() == request.held->tokens);
    world().Count(Rule::kHeld);
  }
  if (complete && info.reason == "stop") {
    world().Count(Rule::kStopped);
  } else if (info.reason == "length") {
    right = right && tokens.size() == request.max_tokens && stop == tokens.end();
    world().Count(Rule::kAnswered);
    client->answered = right;
  } else if (info.reason == "stop") {
    right = right && stop + 1 == tokens.end() && tokens.size() > request.params.min_tokens();
    world().Count(Rule::kStopped);
  } else {
    right = right && info.reason == "cancelled" && request.cancel_after.has_value();
    world().Count(Rule::kCancelled);
  }
  if (!right) {
    world().Fail(client->Name() + " ended with \"" + info.reason + "\" after " +
                 std::to_string(tokens.size()) + " tokens of " +
                 std::to_string(request.max_tokens));
  }
  End(client, "has its answer (" + info.reason + "): " + Join(tokens));
}

void SimClients::End(const std::shared_ptr<Client>& client, const std::string& how) {
  client->ended = true;
  world().Tell([&] { return client->Name() + " " + how; });
}

void SimClients::CheckTokens(const Client& client) {
  const std::vector<uint32_t> expected =
      ExactAnswer(model_, client.request.prompt, client.request.params, client.tokens.size(),
                  client.request.held);
  if (client.tokens != expected) {
    world().Fail(client.Name() + " was told " + Join(client.tokens) + ", one worker says " +
                 Join(expected));
  }
}

// A typed error that this request may have come to.
void SimClients::CheckError(const Client& client, const absl::Status& status, bool accepted) {
  static const std::map<std::string, std::optional<Rule>> kReasons = {
      {"REQUEST_IN_FLIGHT", Rule::kInFlight},
      {"REPLACED", std::nullopt},
      {"DEADLINE_EXCEEDED", Rule::kDeadline},
      {"KV_NEVER_FITS", Rule::kNeverFits},
      {"CONTEXT_EXCEEDED", Rule::kContext},
      {"QUEUE_FULL", Rule::kQueueFull},
      {"NON_FINITE", std::nullopt},
      {"BACKEND_FAILED", std::nullopt},
      {"SEQUENCE_NOT_FOUND", std::nullopt},
      {"FINGERPRINT_MISMATCH", std::nullopt},
      {"POSITION_MISMATCH", std::nullopt},
      {"REQUEST_BREAKS_STAGE", std::nullopt},
      {"PIPELINE_DOWN", std::nullopt},
      {"NODE_LOST", std::nullopt},
      {"NO_ROOM", std::nullopt},
      {"CLUSTER_CHANGED", std::nullopt},
      {"LINKS_NOT_OPENED", std::nullopt},
      {"LINK_NOT_OPENED", std::nullopt},
      {"LINK_NOT_EXPECTED", std::nullopt},
      {"RANKS_BROKEN", std::nullopt},
      {"NO_DEPLOYMENT", std::nullopt},
      {"UNLOADED", std::nullopt},
      {"RELOADING", std::nullopt},
      {"MODEL_NOT_LOADED", std::nullopt},
      {"MODEL_LOADING", std::nullopt},
      {"WAITING_FOR_NODES", std::nullopt},
      {"MEMORY_LIMIT", std::nullopt},
      {"DISK_FULL", std::nullopt},
      {"NO_SOURCE", std::nullopt},
      {"NODE_STOPPED", std::nullopt},
      {"COORDINATOR_LOST", std::nullopt}};
  const auto reason = kReasons.find(ReasonOf(status));
  if (reason == kReasons.end() || status.message().empty()) {
    world().Fail(client.Name() + " failed with what no fault explains: " + Describe(status));
    return;
  }
  if (accepted && client.started && reason->first == "KV_NEVER_FITS") {
    world().Fail(client.Name() + " was admitted, and failed for memory: " + Describe(status));
  }
  if (reason->second.has_value()) {
    world().Count(*reason->second);
  }
  // By faults, and not by what clients ask for and when.
  static const std::set<std::string> kFaultReasons = {
      "NON_FINITE",        "BACKEND_FAILED",       "SEQUENCE_NOT_FOUND", "FINGERPRINT_MISMATCH",
      "POSITION_MISMATCH", "REQUEST_BREAKS_STAGE", "PIPELINE_DOWN",      "NODE_LOST",
      "LINKS_NOT_OPENED",  "LINK_NOT_OPENED",      "LINK_NOT_EXPECTED",  "NO_DEPLOYMENT",
      "RANKS_BROKEN"};
  const ClientRequest& request = client.request;
  // What was generated is computed too.
  const auto has_poison = [](const std::vector<uint32_t>& tokens) {
    return std::find(tokens.begin(), tokens.end(), kPoisonToken) != tokens.end();
  };
  const bool poison = has_poison(request.prompt) || has_poison(client.tokens);
  // A model whose node is lost refuses whom it would have to let wait.
  const bool fault =
      kFaultReasons.contains(reason->first) && (accepted || reason->first != "NODE_LOST");
  if (world().scenario.moves_only && fault) {
    world().Fail(client.Name() + " failed because the model moved: " + Describe(status));
  }
  if (world().scenario.poison_only && !poison && fault) {
    world().Fail(client.Name() +
                 " failed with what another one brought about: " + Describe(status));
  }
  if (request.deadline_after.has_value() && reason->first == "DEADLINE_EXCEEDED" &&
      world().now() < request.at + *request.deadline_after) {
    world().Fail(client.Name() + " failed before its deadline");
  }
}

size_t SimClients::waiting() const {
  return static_cast<size_t>(std::count_if(clients_.begin(), clients_.end(),
                                           [](const auto& client) { return !client->ended; }));
}

std::string SimClients::NamesOfWaiting() const {
  std::string names;
  for (const auto& client : clients_) {
    names += client->ended ? "" : (names.empty() ? "" : ", ") + client->Name();
  }
  return names;
}

bool SimClients::NewestAnswered() const { return clients_.back()->answered; }

}  // namespace strata::sim
