#include "coordinator/deployment/placed_model.h"

#include <algorithm>
#include <utility>

#include "common/app/log.h"
#include "common/plan.h"
#include "common/status.h"
#include "coordinator/engine/drafter.h"

namespace strata {

namespace {

bool SameLives(const v1::PlanStage& a, const v1::PlanStage& b) {
  return std::equal(a.ranks().begin(), a.ranks().end(), b.ranks().begin(), b.ranks().end(),
                    [](const v1::PlanRank& x, const v1::PlanRank& y) {
                      return x.incarnation() == y.incarnation();
                    });
}

bool SameClass(const v1::Plan& a, const v1::Plan& b) {
  return a.numerics_class().name() == b.numerics_class().name();
}

}  // namespace

bool PlanUses(const v1::Plan& plan, const std::string& node) {
  const auto& stages = OnlyPipeline(plan).stages();
  return std::any_of(stages.begin(), stages.end(),
                     [&](const v1::PlanStage& stage) { return StageUses(stage, node); });
}

bool StageStays(const v1::Plan& before, const v1::Plan& after, int index) {
  const auto& x = OnlyPipeline(before).stages();
  const auto& y = OnlyPipeline(after).stages();
  if (x.size() != y.size() || !SameClass(before, after)) {
    return false;
  }
  const v1::PlanStage& old = x[index];
  const v1::PlanStage& stage = y[index];
  return SameRanks(old, stage) && SameLives(old, stage) &&
         old.first_layer() == stage.first_layer() && old.last_layer() == stage.last_layer() &&
         std::equal(old.kv_pages().begin(), old.kv_pages().end(), stage.kv_pages().begin(),
                    stage.kv_pages().end());
}

namespace {

// By KV group, of the stages that have pages of it.
std::vector<uint64_t> LeastPages(const v1::Plan& plan) {
  std::vector<uint64_t> least;
  for (const v1::PlanStage& stage : OnlyPipeline(plan).stages()) {
    least.resize(std::max(least.size(), static_cast<size_t>(stage.kv_pages_size())), UINT64_MAX);
    for (int group = 0; group < stage.kv_pages_size(); ++group) {
      if (stage.kv_pages(group) > 0) {
        least[group] = std::min<uint64_t>(least[group], stage.kv_pages(group));
      }
    }
  }
  return least;
}

bool SharesLayers(const v1::PlanStage& a, const v1::PlanStage& b) {
  return a.first_layer() <= b.last_layer() && b.first_layer() <= a.last_layer();
}

}  // namespace

bool KvMayMove(const v1::Plan& before, const v1::Plan& after, bool windows) {
  const std::vector<uint64_t> old = LeastPages(before);
  const std::vector<uint64_t> pages = LeastPages(after);
  return SameClass(before, after) &&
         std::equal(old.begin(), old.end(), pages.begin(), pages.end(),
                    [](uint64_t x, uint64_t y) { return y >= x; }) &&
         (!windows || OnlyPipeline(before).stages_size() == OnlyPipeline(after).stages_size());
}

PlacedModel::PlacedModel(uint64_t id, std::shared_ptr<const DeployedModel> model, v1::Plan plan,
                         v1::LoadOptions load_options, RotaryBlob rotary,
                         std::function<void()> record_later)
    : id_(id),
      model_(std::move(model)),
      plan_(std::move(plan)),
      load_options_(std::move(load_options)),
      rotary_(std::move(rotary)),
      record_later_(std::move(record_later)),
      epochs_(model_->name, record_later_) {}

const v1::PlanRank& PlacedModel::FirstRankOf(int stage) const {
  return FirstRank(OnlyPipeline(plan_).stages(stage));
}

std::string PlacedModel::DraftModel() const {
  return ParseLoadSpeculate(load_options_.speculate()).value_or(LoadSpeculate()).model;
}

bool PlacedModel::Uses(const std::string& node) const { return PlanUses(plan_, node); }

LoadSubject PlacedModel::Subject(const v1::Plan& plan) const {
  return {.deployment = id_,
          .model = model_.get(),
          .plan = &plan,
          .options = &load_options_,
          .rotary = &rotary_};
}

v1::Load PlacedModel::MakeLayerLoad(uint32_t layer, uint32_t tokens, uint32_t rows) const {
  return strata::MakeLayerLoad(Subject(plan_), layer, tokens, rows);
}

// ---- The record, and epochs.

StoredDeployment PlacedModel::RecordOf(const v1::Plan& plan, const v1::LoadOptions& options) const {
  StoredDeployment stored;
  stored.id = id_;
  stored.model = model_->name;
  stored.options = options;
  stored.plan = plan;
  stored.plan.set_epoch(RecordedEpochs::Ahead(NextEpoch()));
  return stored;
}

void PlacedModel::OnRecorded(uint64_t epoch, const absl::Status& status) {
  epochs_.OnRecorded(epoch, status);
  if (!status.ok()) {
    LogError(
        {{"model", model_->name}, {"deployment", id_}, {"epochs_left", epochs_.Left(NextEpoch())}},
        "the model's plan cannot be recorded: " + Describe(status));
  }
}

uint64_t PlacedModel::NextEpoch() const { return std::max(plan_.epoch(), skipped_) + 1; }

absl::Status PlacedModel::Renew(const std::map<std::string, uint64_t>& incarnations) {
  for (v1::PlanStage& stage : *OnlyPipeline(&plan_)->mutable_stages()) {
    for (v1::PlanRank& rank : *stage.mutable_ranks()) {
      const auto it = incarnations.find(rank.node());
      rank.set_incarnation(it == incarnations.end() ? 0 : it->second);
    }
  }
  const absl::Status used = UseEpoch(NextEpoch());
  LoadsAnew();
  return used;
}

void PlacedModel::LoadsAnew() {
  load_epochs_.assign(static_cast<size_t>(OnlyPipeline(plan_).stages_size()), plan_.epoch());
  passes_on_anew_ = false;
}

absl::Status PlacedModel::UseEpoch(uint64_t epoch) {
  plan_.set_epoch(epoch);
  return epochs_.Use(epoch);
}

void PlacedModel::SkipTo(uint64_t epoch) { skipped_ = std::max(skipped_, epoch); }

void PlacedModel::Replace(const v1::Plan& plan) {
  const uint64_t epoch = plan_.epoch();
  plan_ = v1::Plan(plan);
  plan_.set_epoch(epoch);
  if (before_change_.has_value()) {
    load_options_ = std::move(before_change_->options);
    before_change_.reset();
  }
  record_later_();
}

// ---- Another placement beside it.

void PlacedModel::PrepareNext(const v1::Plan& plan) {
  next_ = plan;
  next_->set_epoch(NextEpoch());
  SkipTo(next_->epoch());
}

uint64_t PlacedModel::EpochAhead() {
  SkipTo(NextEpoch() + 1);
  return skipped_;
}

std::vector<uint64_t> PlacedModel::LoadsOfNext() const {
  std::vector<uint64_t> loads;
  for (int i = 0; i < OnlyPipeline(*next_).stages_size(); ++i) {
    loads.push_back(StageStays(plan_, *next_, i) ? load_epochs_[static_cast<size_t>(i)]
                                                 : next_->epoch());
  }
  return loads;
}

absl::Status PlacedModel::TakeNext(uint64_t ahead) {
  const uint64_t epoch = ahead != 0 ? ahead : NextEpoch();
  RETURN_IF_ERROR(epochs_.Use(epoch));
  std::vector<uint64_t> loads = LoadsOfNext();
  plan_ = *std::exchange(next_, std::nullopt);
  plan_.set_epoch(epoch);
  moved_in_ = epoch;
  load_epochs_ = std::move(loads);
  passes_on_anew_ = true;
  record_later_();
  return absl::OkStatus();
}

std::vector<v1::Fence> PlacedModel::FencesOf(const v1::Plan& plan,
                                             const std::vector<uint64_t>& loads,
                                             bool with_next) const {
  const auto& stages = OnlyPipeline(plan).stages();
  std::vector<v1::Fence> fences;
  for (int i = 0; i < stages.size(); ++i) {
    v1::Fence& fence = fences.emplace_back();
    fence.set_deployment(id_);
    fence.set_loaded_epoch(loads[static_cast<size_t>(i)]);
    if (with_next && i + 1 < stages.size()) {
      fence.mutable_next()->set_node(FirstRank(stages[i + 1]).node());
      fence.mutable_next()->set_incarnation(FirstRank(stages[i + 1]).incarnation());
    }
  }
  return fences;
}

std::vector<v1::Fence> PlacedModel::Fences() const {
  return FencesOf(plan_, load_epochs_, passes_on_anew_);
}

bool PlacedModel::KvMovesToNext() const {
  const auto& groups = model_->spec().kv_groups;
  return KvMayMove(plan_, *next_, std::any_of(groups.begin(), groups.end(), [](const auto& group) {
                     return group.kind == KvKind::kWindow;
                   }));
}

std::vector<std::vector<v1::Fence>> PlacedModel::FencesAhead() const {
  std::vector<std::vector<v1::Fence>> all;
  const bool kv_moves = KvMovesToNext();
  for (v1::Fence& fence : FencesOf(*next_, LoadsOfNext(), true)) {
    fence.set_ahead(true);
    const auto stage = static_cast<int>(all.size());
    std::vector<v1::Fence>& fences = all.emplace_back();
    for (int i = 0; i < OnlyPipeline(plan_).stages_size(); ++i) {
      if (kv_moves && !StageStays(plan_, *next_, stage) &&
          SharesLayers(OnlyPipeline(plan_).stages(i), OnlyPipeline(*next_).stages(stage))) {
        v1::KvSource* const from = fences.emplace_back(fence).mutable_kv_from();
        from->mutable_worker()->set_node(FirstRankOf(i).node());
        from->mutable_worker()->set_incarnation(FirstRankOf(i).incarnation());
        from->set_loaded_epoch(load_epochs_[static_cast<size_t>(i)]);
      }
    }
    if (fences.empty()) {
      fences.push_back(std::move(fence));
    }
  }
  return all;
}

std::vector<std::pair<v1::PlanRank, uint64_t>> PlacedModel::LeftStages() const {
  std::vector<std::pair<v1::PlanRank, uint64_t>> left;
  for (int i = 0; i < OnlyPipeline(plan_).stages_size(); ++i) {
    if (!StageStays(plan_, *next_, i)) {
      for (const v1::PlanRank& rank : OnlyPipeline(plan_).stages(i).ranks()) {
        left.emplace_back(rank, load_epochs_[static_cast<size_t>(i)]);
      }
    }
  }
  return left;
}

// ---- Changes of KV.

absl::Status PlacedModel::BeginChange(const v1::Plan& plan, const v1::LoadOptions& options) {
  // Copies: what is given may be what stands, and is moved from below.
  v1::Plan changed = plan;
  v1::LoadOptions changed_options = options;
  changed.set_epoch(NextEpoch());
  RETURN_IF_ERROR(epochs_.Use(changed.epoch()));
  for (int i = 0; i < OnlyPipeline(plan).stages_size(); ++i) {
    const v1::PlanStage& stands = OnlyPipeline(plan_).stages(i);
    v1::PlanStage* stage = OnlyPipeline(&changed)->mutable_stages(i);
    for (int rank = 0; rank < stage->ranks_size(); ++rank) {
      stage->mutable_ranks(rank)->set_incarnation(stands.ranks(rank).incarnation());
    }
  }
  LogInfo({{"model", model_->name},
           {"deployment", id_},
           {"kv_tokens", options.kv_tokens()},
           {"kv_tokens_before", load_options_.kv_tokens()}},
          "the model's KV is resized");
  resize_problem_ = absl::OkStatus();
  before_change_ = Placing{std::exchange(plan_, std::move(changed)),
                           std::exchange(load_options_, std::move(changed_options))};
  LoadsAnew();
  return absl::OkStatus();
}

absl::Status PlacedModel::UndoChange(const absl::Status& why) {
  LogError({{"model", model_->name}, {"deployment", id_}},
           "the model keeps its KV: " + Describe(why));
  const uint64_t epoch = NextEpoch();
  RETURN_IF_ERROR(epochs_.Use(epoch));
  DropChange(why);
  plan_.set_epoch(epoch);
  LoadsAnew();
  return absl::OkStatus();
}

void PlacedModel::DropChange(const absl::Status& why) {
  if (!before_change_.has_value()) {
    return;
  }
  const uint64_t epoch = plan_.epoch();
  plan_ = std::move(before_change_->plan);
  plan_.set_epoch(epoch);
  load_options_ = std::move(before_change_->options);
  before_change_.reset();
  resize_problem_ = why;
  record_later_();
}

}  // namespace strata
