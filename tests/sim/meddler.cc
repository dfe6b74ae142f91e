#include "tests/sim/meddler.h"

#include <algorithm>
#include <utility>

#include "common/limits.h"
#include "worker/runner/item_slice.h"

namespace strata::sim {
namespace {

constexpr size_t kRemembered = 32;

bool Has(const StepMessage& step, uint64_t generation) {
  const auto& items = step.header.items();
  return std::any_of(items.begin(), items.end(), [generation](const v1::StepItem& item) {
    return item.sequence().generation() == generation;
  });
}

uint32_t CommonLength(const std::vector<uint32_t>& ids, const v1::StepItem& item) {
  uint32_t length = 0;
  while (length < ids.size() && static_cast<int>(length) < item.token_ids_size() &&
         ids[length] == item.token_ids(static_cast<int>(length))) {
    ++length;
  }
  return length;
}

}  // namespace

void Meddler::NewEpoch(uint64_t epoch) {
  epoch_ = epoch;
  sent_.clear();
  recent_.clear();
  added_.clear();
}

void Meddler::OnSend(StepMessage* step) {
  if (step->header.epoch() != epoch_) {
    NewEpoch(step->header.epoch());
  }
  for (const v1::StepCommand& command : step->header.commands()) {
    if (command.has_release()) {
      sent_[command.release().sequence().generation()].released = true;
    }
    // Cut back to what is cached: an item sent before would be right once more.
    if (command.has_truncate()) {
      sent_[command.truncate().sequence().generation()].released = true;
    }
  }
  if (step->header.resync() || step->header.items_size() == 0) {
    return;
  }
  Added added;
  const uint32_t forks = world_->scenario.forks_one_in;
  if (forks > 0 && world_->random.OneIn(forks)) {
    Fork(step, /*wrong=*/false, &added);
  }
  std::erase_if(armed_, [&](const Fault& fault) {
    const Added before = added;
    if (fault.kind == FaultKind::kForkWrongSource) {
      Fork(step, /*wrong=*/true, &added);
    } else if (fault.kind == FaultKind::kRepeatItem) {
      Repeat(step, fault.random, &added);
    } else {
      AddStale(step, fault.random, &added);
    }
    const bool struck = added.commands != before.commands || added.items != before.items;
    if (struck) {
      world_->Count(fault.kind);
      world_->Tell(
          [&] { return "FAULT: " + std::string(NameOf(fault.kind)) + ": " + Show(step->header); });
    }
    return struck;
  });
  Remember(*step, step->header.items_size() - added.items);
  added_[step->header.step()] = added;
}

// The first of the step's new sequences begins as a copy of the first tokens of another one. Fewer
// than a page of them, so that the copy shares no page for longer than the step and the ledger's
// counts stay as they are.
void Meddler::Fork(StepMessage* step, bool wrong, Added* added) {
  v1::StepItem* item = nullptr;
  for (v1::StepItem& candidate : *step->header.mutable_items()) {
    const uint64_t generation = candidate.sequence().generation();
    if (candidate.position() == 0 && SliceOf(candidate).whole() && !sent_.contains(generation) &&
        (item == nullptr || generation < item->sequence().generation())) {
      item = &candidate;
    }
  }
  const bool plain = item != nullptr && (item->rows_wanted() == v1::ROWS_WANTED_NONE ||
                                         item->rows_wanted() == v1::ROWS_WANTED_UNSPECIFIED);
  if (!plain || added->commands > 0) {
    return;
  }
  const auto [source, length] = FindSource(*item, wrong);
  if (length == 0) {
    return;
  }
  v1::ForkCommand* fork = step->header.add_commands()->mutable_fork();
  fork->mutable_source()->set_request_id(sent_.at(source).request_id);
  fork->mutable_source()->set_generation(source);
  *fork->mutable_destination() = item->sequence();
  fork->set_length(length);
  Fingerprint fingerprint = root_;
  for (uint32_t i = 0; i < length; ++i) {
    fingerprint = FingerprintLink(fingerprint, item->token_ids(static_cast<int>(i)));
  }
  fork->set_fingerprint(fingerprint);
  *fork->mutable_params() = item->params();
  Sent& sent = sent_[item->sequence().generation()];
  sent.ids.assign(item->token_ids().begin(), item->token_ids().begin() + length);
  item->mutable_token_ids()->ExtractSubrange(0, static_cast<int>(length), nullptr);
  item->set_position(length);
  item->set_fingerprint(fingerprint);
  step->header.set_rows(step->header.rows() - length);
  ++added->commands;
}

Meddler::Source Meddler::FindSource(const v1::StepItem& item, bool wrong) const {
  const auto most =
      std::min<uint32_t>(kPageTokens - 1, static_cast<uint32_t>(item.token_ids_size()) - 1);
  for (const auto& [generation, sent] : sent_) {
    if (sent.released || sent.sliced || sent.ids.empty() ||
        generation == item.sequence().generation()) {
      continue;
    }
    const uint32_t common = CommonLength(sent.ids, item);
    const auto held = static_cast<uint32_t>(sent.ids.size());
    const uint32_t length = std::min(most, wrong ? held : common);
    if (length > 0 && (!wrong || common < length)) {
      return {generation, length};
    }
  }
  return {};
}

void Meddler::Repeat(StepMessage* step, uint64_t random, Added* added) {
  // A further slice, or an item of a sequence that this step has too, or of one that it has not.
  for (const v1::StepItem& item : recent_) {
    if (!sent_.at(item.sequence().generation()).released && item.from_layer() > 0) {
      AddItem(step, item, added);
      return;
    }
  }
  if (world_->scenario.waves) {
    return;  // It strikes when there is one.
  }
  const bool twice = random % 4 == 0;
  for (const v1::StepItem& item : recent_) {
    const uint64_t generation = item.sequence().generation();
    if (!sent_.at(generation).released && Has(*step, generation) == twice) {
      AddItem(step, item, added);
      return;
    }
  }
}

// The item that created a sequence which has been released since.
void Meddler::AddStale(StepMessage* step, uint64_t random, Added* added) {
  std::vector<const Sent*> gone;
  for (const auto& [generation, sent] : sent_) {
    if (sent.released && sent.created && sent.first.position() == 0) {
      gone.push_back(&sent);
    }
  }
  if (!gone.empty()) {
    AddItem(step, gone[random % gone.size()]->first, added);
  }
}

void Meddler::AddItem(StepMessage* step, v1::StepItem item, Added* added) {
  if (added->items == static_cast<int>(kMeddledItems)) {
    return;
  }
  item.set_sample(false);
  item.clear_mask();
  item.clear_draft_tokens();
  item.clear_draft_masks();
  item.set_rows_wanted(v1::ROWS_WANTED_NONE);
  item.set_rows_from(0);
  item.clear_following_id();
  step->header.set_rows(step->header.rows() + static_cast<uint32_t>(item.token_ids_size()));
  *step->header.add_items() = std::move(item);
  ++added->items;
}

void Meddler::Remember(const StepMessage& step, int items) {
  for (int i = 0; i < items; ++i) {
    const v1::StepItem& item = step.header.items(i);
    Sent& sent = sent_[item.sequence().generation()];
    if (sent.request_id.empty()) {
      sent.request_id = item.sequence().request_id();
      sent.first = item;
    }
    sent.sliced |= !SliceOf(item).whole();
    // Not one that goes on from an older epoch, or behind drafts, which may be cut off.
    if (sent.ids.size() == item.position()) {
      sent.ids.insert(sent.ids.end(), item.token_ids().begin(),
                      item.token_ids().end() - item.draft_tokens());
    }
    recent_.push_back(item);
  }
  while (recent_.size() > kRemembered) {
    recent_.pop_front();
  }
}

void Meddler::OnResult(ResultMessage* result) {
  v1::StepResult& header = result->header;
  const auto it = header.epoch() == epoch_ ? added_.find(header.step()) : added_.end();
  if (it == added_.end()) {
    return;
  }
  for (int i = 0; i < it->second.items && header.items_size() > 0; ++i) {
    header.mutable_items()->RemoveLast();
  }
  for (int i = 0; i < it->second.commands && header.commands_size() > 0; ++i) {
    if (!header.commands(header.commands_size() - 1).has_error()) {
      world_->Count(Rule::kForkServed);
    }
    header.mutable_commands()->RemoveLast();
  }
  for (const v1::ItemResult& item : header.items()) {
    if (const auto sent = sent_.find(item.sequence().generation());
        sent != sent_.end() && !item.has_error()) {
      sent->second.created = true;
    }
  }
}

}  // namespace strata::sim
