// KV that goes from a simulated stage to the one that takes its place, in pieces that the network
// may damage; and the other one may be gone at any of them.
#include <chrono>
#include <string>
#include <utility>
#include <vector>

#include "common/fingerprint.h"
#include "common/status.h"
#include "tests/sim/random.h"
#include "tests/sim/sim_stage.h"
#include "tests/sim/sim_worker.h"
#include "worker/runner/carried_page.h"

namespace strata::sim {
namespace {

// Of the parts that arrive.
constexpr uint32_t kDamagedOneIn = 5;
constexpr auto kBetweenParts = std::chrono::microseconds(200);

// What a stage must not believe. A broken wire flips a bit; what a broken stage says has checksums
// that are right: bytes of one page under the name of another, or another token.
void Damage(uint64_t random, const LayerRange& layers, v1::CarryKvPart* part) {
  Random choice(random);
  if (part->sequences_size() > 0) {
    auto* const ids = part->mutable_sequences(0)->mutable_token_ids();
    const auto at = static_cast<int>(choice.Below(static_cast<uint32_t>(ids->size())));
    ids->Set(at, (ids->Get(at) + 1) % kVocab);
  } else if (part->pages_size() > 1 && !choice.OneIn(4)) {
    v1::CarriedPage* const a = part->mutable_pages(0);
    v1::CarriedPage* const b = part->mutable_pages(part->pages_size() - 1);
    if (a->group() == b->group()) {
      const uint32_t page = a->page();
      a->set_page(b->page());
      b->set_page(page);
      a->set_crc32c(CarriedPageCrc(layers, *a));
      b->set_crc32c(CarriedPageCrc(layers, *b));
    }
  } else if (part->pages_size() > 0 && choice.OneIn(2)) {
    part->mutable_pages()->RemoveLast();
  } else if (part->pages_size() > 0) {
    (*part->mutable_pages(0)->mutable_data())[0] ^= 1;
  }
}

}  // namespace

void SimStage::Carry(const FenceStep& step) {
  carrying_ = Carrying{.id = ++carries_, .step = step};
  After(step.timeout, [id = carries_](SimStage* stage) { stage->EndCarrying(id, false); });
  AskForKv();
}

void SimStage::EndCarrying(uint64_t id, bool carried) {
  if (!carrying_.has_value() || carrying_->id != id) {
    return;
  }
  const bool ahead = carrying_->step.ahead;
  const bool merged = carrying_->step.kv_from.size() > 1;
  carrying_.reset();
  if (carried && !ahead && runner_.taken_kv().sequences > 0) {
    world().Count(merged ? Rule::kKvMerged : Rule::kKvCarried);
  } else if (!carried) {
    world().Count(Rule::kKvNotCarried);
  }
  epochs_.OnCarried(carried);
  Drive();
}

void SimStage::AskForKv() {
  const FenceStep& step = carrying_->step;
  const uint32_t round = carrying_->rounds.round();
  std::vector<uint32_t>& turn = carrying_->turn;
  const uint32_t main = runner_.taken_kv().main;
  if (turn.empty()) {
    if (step.ahead && round == 0) {
      runner_.ForgetTakenKv();
    }
    turn = AskedInTurn(step.kv_from.size(), step.ahead, main);
  }
  const uint32_t source = turn.front();
  turn.erase(turn.begin());
  const v1::KvSource& asked = step.kv_from[source];
  v1::CarryKvRequest request = runner_.DescribeKv();
  request.set_expected_node(asked.worker().node());
  request.set_expected_incarnation(asked.worker().incarnation());
  request.set_deployment(load_.deployment());
  request.set_loaded_epoch(asked.loaded_epoch());
  request.set_round(round);
  request.set_final(!step.ahead);
  request.set_pages_only(!step.ahead && source != main);
  const Machine from = MachineOf(asked.worker().node());
  const KvAnswerFn answer = [network = life_.cluster->network, self = life_.machine, from,
                             reach = reach_, id = carrying_->id, source](const KvParts& parts) {
    network->SendControl(from, self, [reach, id, source, parts] {
      reach([id, source, parts](SimStage* stage) { stage->OnKv(id, source, parts); });
    });
  };
  life_.cluster->network->SendControl(life_.machine, from,
                                      [cluster = life_.cluster, from, request, answer] {
                                        cluster->worker(from)->OnKvAsked(request, answer);
                                      });
}

void SimStage::OnKv(uint64_t id, uint32_t source, KvParts parts) {
  if (!carrying_.has_value() || carrying_->id != id) {
    return;
  }
  if (!parts.ok()) {
    EndCarrying(id, false);
    return;
  }
  for (v1::CarryKvPart& part : *parts) {
    if (part.has_layers()) {
      carrying_->layers[source] = {part.layers().first_layer(), part.layers().last_layer()};
    }
    const uint64_t random = Mix64(world().scenario.seed ^ Mix64(load_.epoch() << 32 | ++parts_));
    if (random % kDamagedOneIn == 0) {
      Damage(random, carrying_->layers[source], &part);
    }
    if (const absl::Status taken = runner_.TakeKv(source, part); !taken.ok()) {
      world().Tell([&] { return life_.name + ": " + std::string(taken.message()); });
      world().Count(Rule::kKvRefused);
      EndCarrying(id, false);
      return;
    }
  }
  if (!parts->empty()) {
    return;  // More comes.
  }
  if (!carrying_->turn.empty()) {
    AskForKv();
    return;
  }
  carrying_->rounds.Done(runner_.taken_kv());
  if (carrying_->step.ahead && carrying_->rounds.More()) {
    AskForKv();
  } else {
    EndCarrying(id, carrying_->rounds.taken().covers);
  }
}

void SimStage::GiveKv(const v1::CarryKvRequest& request, bool begins, const KvAnswerFn& answer) {
  const KvParts parts = runner_.GiveKv(request, begins);
  answer(parts);
  if (parts.ok() && !parts->empty()) {
    After(kBetweenParts,
          [request, answer](SimStage* stage) { stage->GiveKv(request, /*begins=*/false, answer); });
  }
}

}  // namespace strata::sim
