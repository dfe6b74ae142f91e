// A model under a plan: which nodes have which of its layers, in which epoch and with how much KV,
// and what of that is to be found after a restart.
#ifndef STRATA_COORDINATOR_DEPLOYMENT_PLACED_MODEL_H_
#define STRATA_COORDINATOR_DEPLOYMENT_PLACED_MODEL_H_

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "coordinator/deployment/deployed_model.h"
#include "coordinator/deployment/deployment_options.h"
#include "coordinator/deployment/load_messages.h"
#include "coordinator/deployment/recorded_epochs.h"
#include "coordinator/store/state_store.h"
#include "strata/v1/membership.pb.h"
#include "strata/v1/types.pb.h"

namespace strata {

// Whether the stage at `index` of `after` stands already under `before`: the same layers with the
// same KV on the same nodes, in the same place of as many stages of the same numerics class. Where
// it passes on may differ.
bool StageStays(const v1::Plan& before, const v1::Plan& after, int index);

// Whether the stages of `after` can have the KV that those of `before` have, layer by layer: those
// with the fewest pages of a KV group have no fewer than before. Of a model with windows
// (`windows`), whose accounts follow the number of stages, there have to be as many. And both are
// of the same numerics class.
bool KvMayMove(const v1::Plan& before, const v1::Plan& after, bool windows);

// Whether a rank of a stage of the plan is on the node.
bool PlanUses(const v1::Plan& plan, const std::string& node);

// A core: one thread. Only the deployment that is this model placed changes it.
class PlacedModel {
 public:
  uint64_t id() const { return id_; }
  const std::shared_ptr<const DeployedModel>& model() const { return model_; }
  const v1::Plan& plan() const { return plan_; }
  const v1::LoadOptions& load_options() const { return load_options_; }
  // The model that guesses for it; "": none.
  std::string DraftModel() const;
  bool Uses(const std::string& node) const;
  // Whose worker is the stage's.
  const v1::PlanRank& FirstRankOf(int stage) const;
  // What its workers are told to load of `plan`.
  LoadSubject Subject(const v1::Plan& plan) const;
  // Another placement, which is loaded beside this one, in the epoch of its loads; null: there is
  // none.
  const v1::Plan* next() const { return next_.has_value() ? &*next_ : nullptr; }
  // The epoch in which a placement that was beside another took its place, which is no sign of a
  // fault; 0: none did.
  uint64_t moved_in() const { return moved_in_; }
  // What the worker of each stage is told when an epoch begins, less that epoch and addresses.
  std::vector<v1::Fence> Fences() const;
  // What the workers of `next` are told to open its links ahead of the epoch in which it takes this
  // one's place, likewise; and whose KV they take over, where KvMayMove: by stage, one after the
  // other, each of which names one source at most.
  std::vector<std::vector<v1::Fence>> FencesAhead() const;
  // Whether `next` can have this one's KV: the same KvMayMove.
  bool KvMovesToNext() const;
  // The ranks of stages of this one that do not stay, with the epochs of their Loads.
  std::vector<std::pair<v1::PlanRank, uint64_t>> LeftStages() const;
  // Of a stage with one layer alone and KV for one sequence of so many tokens, `rows` at once, as
  // ComputeLayers has it: weights and numerics are the placed model's.
  v1::Load MakeLayerLoad(uint32_t layer, uint32_t tokens, uint32_t rows) const;

  // What is to be found after a restart. Its epoch is above all that may be used until the next
  // record is there, so that a fence need not wait for a disk: see OnRecorded.
  StoredDeployment Record() const { return RecordOf(plan_, load_options_); }
  // The same for what a change of KV would make of it.
  StoredDeployment RecordOf(const v1::Plan& plan, const v1::LoadOptions& options) const;
  // A record with this epoch is in the store; or could not be put there.
  void OnRecorded(uint64_t epoch, const absl::Status& status);

  // Why the last change of KV was undone; ok while it is under way and when it succeeded.
  const absl::Status& resize_problem() const { return resize_problem_; }

 protected:
  // `plan` names nodes by name; incarnations are filled in by Renew. `record_later` is
  // RecordedEpochs'.
  PlacedModel(uint64_t id, std::shared_ptr<const DeployedModel> model, v1::Plan plan,
              v1::LoadOptions load_options, RotaryBlob rotary, std::function<void()> record_later);
  ~PlacedModel() = default;
  PlacedModel(const PlacedModel&) = delete;
  PlacedModel& operator=(const PlacedModel&) = delete;

  // Epochs. All of them: why the epoch may not be used, though it is the plan's now.
  // An epoch for links that are opened ahead: none that a fault of this placement uses first.
  uint64_t EpochAhead();
  // A new one, on nodes whose incarnations are these, by name.
  absl::Status Renew(const std::map<std::string, uint64_t>& incarnations);
  absl::Status UseEpoch(uint64_t epoch);
  // No epoch up to this one is used again.
  void SkipTo(uint64_t epoch);

  // Another placement, in no epoch yet: Renew is to follow. A change of KV that is under way is
  // forgotten, and the placement is recorded soon.
  void Replace(const v1::Plan& plan);

  // Another placement beside this one, in an epoch that nothing else has. It is given up, or takes
  // this one's place in a new epoch: `ahead`, unless that is 0. That may fail for want of one, and
  // then changes nothing.
  void PrepareNext(const v1::Plan& plan);
  void DropNext() { next_.reset(); }
  absl::Status TakeNext(uint64_t ahead);

  // A change of KV on the same nodes and layers, in a new epoch: begun, kept, undone in another
  // epoch, or given up where it is. Begin and undo may fail for want of an epoch, and then change
  // nothing.
  absl::Status BeginChange(const v1::Plan& plan, const v1::LoadOptions& options);
  bool changes() const { return before_change_.has_value(); }
  void KeepChange() { before_change_.reset(); }
  absl::Status UndoChange(const absl::Status& why);
  void DropChange(const absl::Status& why);

 private:
  // What a load places.
  struct Placing {
    v1::Plan plan;
    v1::LoadOptions options;
  };

  uint64_t NextEpoch() const;
  // Of the stages of `next`: the epochs of their Loads.
  std::vector<uint64_t> LoadsOfNext() const;
  std::vector<v1::Fence> FencesOf(const v1::Plan& plan, const std::vector<uint64_t>& loads,
                                  bool with_next) const;
  // All stages are loaded in the plan's epoch.
  void LoadsAnew();

  const uint64_t id_;
  const std::shared_ptr<const DeployedModel> model_;
  v1::Plan plan_;
  v1::LoadOptions load_options_;
  const RotaryBlob rotary_;
  const std::function<void()> record_later_;
  RecordedEpochs epochs_;
  uint64_t skipped_ = 0;  // Epochs up to this one.
  uint64_t moved_in_ = 0;
  std::vector<uint64_t> load_epochs_;  // Of the stages' Loads.
  bool passes_on_anew_ = false;        // Stages may pass on to others than their Loads say.
  std::optional<v1::Plan> next_;
  std::optional<Placing> before_change_;  // While it changes: what it goes back to.
  absl::Status resize_problem_;
};

}  // namespace strata

#endif  // STRATA_COORDINATOR_DEPLOYMENT_PLACED_MODEL_H_
