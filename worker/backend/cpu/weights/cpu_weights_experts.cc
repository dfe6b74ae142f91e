// The experts of a layer: packed into one piece of memory, and kept as one.
#include <algorithm>
#include <set>

#include "absl/strings/str_cat.h"
#include "common/check.h"
#include "common/status.h"
#include "worker/backend/cpu/weights/cpu_weights.h"
#include "worker/backend/cpu/weights/packed_key.h"

namespace strata::cpu {
namespace {

bool Alike(const PanelView& a, const PanelView& b) {
  return a.format == b.format && a.scale_dtype == b.scale_dtype && a.group == b.group;
}

}  // namespace

void WeightLoader::AddExperts(const MlpSpec& mlp, const std::string& layer, const LayerOutputs* own,
                              MixtureWeights* to) {
  const uint64_t hidden = spec_.model.hidden;
  AddLinear(RouterPath(mlp.expert_names, layer), mlp.experts, hidden, mlp.router.bias, &to->router);
  if (mlp.router.corrected) {
    AddVector(CorrectionName(mlp.expert_names, layer), mlp.experts, &to->corrections);
  }
  to->used = mlp.router.used;
  to->experts.resize(mlp.experts);
  const ExpertPaths stacked = StackedExpertPaths(mlp.expert_names, layer);
  const bool in_one = source_.Describe(stacked.gate + ".weight").ok();
  const OutputRange own_ffn = own == nullptr ? OutputRange{0, mlp.ffn} : own->ffn;
  // Of one expert; from the tensor of all, or from its own. Of its outputs these.
  const auto add = [&](const std::string& all, const std::string& of_one, uint32_t expert,
                       uint64_t outputs, uint64_t inputs, OutputRange rows, Linear* linear) {
    if (in_one) {
      AddPart(all, outputs, inputs, false, linear, nullptr,
              {expert * outputs, mlp.experts * outputs});
    } else {
      AddLinear(of_one, outputs, inputs, false, linear);
    }
    KeepRows(slots_.size() - 1, rows);
  };
  Stack& stack = stacks_.emplace_back();
  stack.to = to;
  stack.first = slots_.size();
  for (uint32_t e = 0; e < mlp.experts; ++e) {
    const ExpertPaths one = ExpertPathsOf(mlp.expert_names, layer, e);
    add(stacked.gate, one.gate, e, mlp.ffn, hidden, own_ffn, &to->experts[e].gate);
    add(stacked.up, one.up, e, mlp.ffn, hidden, own_ffn, &to->experts[e].up);
  }
  for (uint32_t e = 0; e < mlp.experts; ++e) {
    const ExpertPaths one = ExpertPathsOf(mlp.expert_names, layer, e);
    add(stacked.down, one.down, e, hidden, mlp.ffn, OwnHidden(), &to->experts[e].down);
  }
  stack.end = slots_.size();
  for (size_t i = stack.first; i < stack.end; ++i) {
    slots_[i].product = nullptr;  // Whichever threads come to them compute experts.
    slots_[i].stacked = true;
  }
  const auto add_bias = [&](const std::string& all, const std::string& of_one, uint32_t expert,
                            uint64_t outputs, OutputRange rows, Linear* linear) {
    AddVector((in_one ? all : of_one) + ".bias", outputs, &linear->bias);
    if (in_one) {
      slots_.back().first_row = expert * outputs;
      slots_.back().all_rows = mlp.experts * outputs;
    }
    KeepRows(slots_.size() - 1, rows);
  };
  for (uint32_t e = 0; e < mlp.experts && mlp.bias; ++e) {
    const ExpertPaths one = ExpertPathsOf(mlp.expert_names, layer, e);
    add_bias(stacked.gate, one.gate, e, mlp.ffn, own_ffn, &to->experts[e].gate);
    add_bias(stacked.up, one.up, e, mlp.ffn, own_ffn, &to->experts[e].up);
    add_bias(stacked.down, one.down, e, hidden, OwnHidden(), &to->experts[e].down);
  }
}

// After the check of its slots.
absl::Status WeightLoader::LayOutStack(Stack* stack) {
  const size_t experts = stack->to->experts.size();
  std::set<std::string> sources;
  std::vector<std::string> keys;
  for (size_t i = stack->first; i < stack->end; ++i) {
    const Slot& slot = slots_[i];
    // Gate and up alternate, then there are those down.
    if (slot.empty()) {
      continue;
    }
    const size_t at = i - stack->first;
    const Slot& first = slots_[stack->first + (at < 2 * experts ? at % 2 : 2 * experts)];
    if (!Alike(slot.layout, first.layout)) {
      return Error(absl::StatusCode::kUnimplemented, "TENSOR_DTYPE",
                   absl::StrCat("tensor ", slot.name, " is stored in another format than ",
                                first.name, ", which the cpu backend does not support yet"))
          .Hint("store all experts of a layer alike");
    }
    stack->form.bytes += slot.form.bytes;
    keys.push_back(slot.form.key);
    sources.insert(slot.form.sources.begin(), slot.form.sources.end());
  }
  stack->form.key = StackKey(keys);
  stack->form.sources.assign(sources.begin(), sources.end());
  stack->kept = store_ != nullptr && !stack->form.key.empty() && store_->Has(stack->form);
  for (size_t i = stack->first; i < stack->end; ++i) {
    slots_[i].kept = stack->kept;
  }
  return absl::OkStatus();
}

absl::Status WeightLoader::LoadStack(const Stack& stack, const Kernels& kernels, ThreadPool* pool,
                                     const std::function<void(const Slot&)>& done) {
  const std::span<Slot> slots(&slots_[stack.first], stack.end - stack.first);
  if (stack.form.bytes == 0) {
    std::for_each(slots.begin(), slots.end(), done);
    return absl::OkStatus();  // Other ranks have all.
  }
  RETURN_IF_ERROR(stack.to->panels.Allocate(stack.form.bytes, "weights"));
  const std::span<uint8_t> panels(stack.to->panels.as(), stack.form.bytes);
  if (placer_ != nullptr) {
    placer_->Place(panels, kCacheLineBytes, 0, panels.size() / kCacheLineBytes);
  }
  uint8_t* next = panels.data();
  for (const Slot& slot : slots) {
    slot.panels->UseMemory({next, slot.form.bytes});
    next += slot.form.bytes;
  }
  if (stack.kept) {
    const absl::Status status = Fetch(stack.form, panels, pool);
    if (status.ok()) {
      for (const Slot& slot : slots) {
        if (!slot.empty()) {
          RETURN_IF_ERROR(slot.panels->Restore(
              slot.layout, [](std::span<uint8_t>) { return absl::OkStatus(); }));
        }
        done(slot);
      }
      return absl::OkStatus();
    }
    if (absl::IsResourceExhausted(status)) {
      return status;
    }
    std::set<std::string> names;
    for (const Slot& slot : slots) {
      names.insert(slot.names.begin(), slot.names.end());
    }
    RETURN_IF_ERROR(source_.Prepare({names.begin(), names.end()}));
  }
  for (Slot& slot : slots) {
    RETURN_IF_ERROR(slot.empty() ? absl::OkStatus() : MakeSlot(&slot, kernels, pool));
    done(slot);
  }
  if (store_ != nullptr && !stack.form.key.empty()) {
    store_->Write(stack.form, panels);
  }
  return absl::OkStatus();
}

}  // namespace strata::cpu
