// The stages are loaded anew under a running engine: its sessions outlive their KV.
#include <utility>

#include "common/check.h"
#include "common/status.h"
#include "coordinator/engine/engine_impl.h"

namespace strata {

KvLedger NewLedger(const EngineConfig& config, const std::vector<EngineStage>& stages) {
  std::vector<KvStage> grants;
  grants.reserve(stages.size());
  for (const EngineStage& stage : stages) {
    grants.push_back({stage.node, stage.kv_pages});
  }
  return {std::move(grants), config.kv_groups,
          KvRowsInFlight(stages.size(), config.max_batch_tokens)};
}

std::vector<uint32_t> LayersOf(const std::vector<EngineStage>& stages) {
  std::vector<uint32_t> layers;
  for (const EngineStage& stage : stages) {
    if (stage.layers == 0) {
      return {};
    }
    layers.push_back(stage.layers);
  }
  return layers;
}

absl::Status Engine::Impl::KvInUse(const Session& session, const KvLedger& ledger,
                                   const std::vector<EngineStage>& stages) const {
  const std::string& request_id = session.request.request_id;
  const std::string& node = stages[ledger.limiting_stage()].node;
  const bool alone = session.most_tokens() > ledger.capacity_tokens();
  return Error(absl::StatusCode::kFailedPrecondition, "KV_IN_USE",
               "request \"" + request_id + "\" was promised " +
                   std::to_string(session.most_tokens()) + " tokens" +
                   (alone ? "" : " besides other guaranteed ones") +
                   ", and the KV pool would hold " + std::to_string(ledger.capacity_tokens()) +
                   ", limited by node \"" + node + "\"")
      .RequestId(request_id)
      .Node(node)
      .Limit("kv_tokens=" + std::to_string(ledger.capacity_tokens()))
      .Hint("wait for it, cancel it with `strata session cancel " + request_id +
            "`, or choose a larger --kv-tokens")
      .Fact("asked_tokens", session.most_tokens())
      .Fact("limit_tokens", ledger.capacity_tokens());
}

absl::Status Engine::Impl::CheckFits(const std::vector<EngineStage>& stages) const {
  KvLedger ledger = NewLedger(config_, stages);
  for (const auto& [id, session] : sessions_) {
    const bool fits = session.request.guaranteed && running_.contains(session.rank())
                          ? ledger.Reserve(session.most_tokens()).has_value()
                          : session.most_tokens() <= ledger.capacity_tokens();
    if (!fits) {
      return KvInUse(session, ledger, stages);
    }
  }
  return absl::OkStatus();
}

// No stage has anything any more, so there is nothing to release either.
void Engine::Impl::ForgetSequences() {
  in_flight_.clear();
  waves_ = LayerWaves(LayersOf(config_.stages));
  sequences_.clear();
  prefix_.Clear();
  holders_.clear();
  ledger_ = NewLedger(config_, config_.stages);
  lengths_.clear();
  for (auto& [id, session] : sessions_) {
    session.replaying = session.replaying || session.committed > 0;
    session.claim.reset();
    Unbegin(session);
    session.ForgetSequence(RootOf(session.request));
  }
  const std::map<Rank, Session*> ran = std::exchange(running_, {});
  bool all_fit = true;                           // Nobody overtakes one that has to wait,
  for (const bool guaranteed : {true, false}) {  // but those that are never preempted.
    for (const auto& [rank, session] : ran) {
      if (session->request.guaranteed != guaranteed) {
        continue;
      }
      if (all_fit) {
        session->claim = ledger_.Reserve(session->first_claim(), Spare());
        all_fit = session->claim.has_value();
      }
      counters_.preemptions += all_fit ? 0 : 1;
      session->preemptions += all_fit ? 0 : 1;
      (all_fit ? running_ : queue_).emplace(rank, session);
    }
  }
}

void Engine::Impl::Suspend(std::vector<EngineStage> stages, TimePoint now) {
  STRATA_CHECK(stages.size() == config_.stages.size());
  fence_.Suspend();
  config_.stages = std::move(stages);
  ForgetSequences();
  std::vector<uint64_t> never_fit;
  for (const auto& [id, session] : sessions_) {
    if (session.most_tokens() > ledger_.capacity_tokens()) {
      never_fit.push_back(id);
    }
  }
  for (const uint64_t id : never_fit) {
    Session& session = sessions_.at(id);
    FailSession(session, NeverFits(session.request.request_id,
                                   TokenSum(session.prompt_tokens, session.max_tokens),
                                   session.most_tokens()));
  }
  ExpireDeadlines(now);
}

void Engine::Impl::LoseStages(const absl::Status& why, TimePoint now) {
  const TimePoint since = LastSign(now);
  NoteSuspects();
  Suspend(config_.stages, now);
  FailOffenders(why);
  fence_.LoseStages(why, since, now);
}

void Engine::Impl::Resume(uint64_t epoch, TimePoint now) {
  fence_.Resume(epoch, now);
  quarantine_.reset();
  SendFence();
}

}  // namespace strata
