// After the check: memory for a stage's weights, and what comes there, from the store or packed.
#include <algorithm>
#include <cstring>
#include <map>
#include <set>
#include <utility>

#include "common/model/block_formats.h"
#include "common/status.h"
#include "worker/backend/cpu/kernels/convert.h"
#include "worker/backend/cpu/weights/cpu_weights.h"

namespace strata::cpu {
namespace {

// Columns of a row-major tensor as rows.
std::vector<uint8_t> Transposed(const TensorView& tensor) {
  const size_t rows = tensor.shape[0];
  const size_t columns = tensor.shape[1];
  const size_t element = DtypeBytes(tensor.dtype);
  std::vector<uint8_t> out(tensor.bytes);
  for (size_t row = 0; row < rows; ++row) {
    for (size_t column = 0; column < columns; ++column) {
      std::memcpy(out.data() + (column * rows + row) * element,
                  tensor.data + (row * columns + column) * element, element);
    }
  }
  return out;
}

// The weights of a matrix of blocks.
std::vector<float> Decoded(const TensorView& tensor) {
  const size_t inputs = tensor.shape[1];
  std::vector<float> out(tensor.shape[0] * inputs);
  const size_t row_bytes = tensor.bytes / tensor.shape[0];
  for (size_t row = 0; row < tensor.shape[0]; ++row) {
    for (size_t part = 0; part * kBlockPart < inputs; ++part) {
      DecodePart(tensor.dtype, tensor.data + row * row_bytes, part,
                 out.data() + row * inputs + part * kBlockPart);
    }
  }
  return out;
}

// Small tensors become float32, exactly.
std::vector<float> ToFloats(const TensorView& tensor, RowOrder order) {
  std::vector<float> out(tensor.bytes / DtypeBytes(tensor.dtype));
  for (size_t i = 0; i < out.size(); ++i) {
    const size_t at = order.Stored(i);
    if (tensor.dtype == Dtype::kF32) {
      std::memcpy(&out[i], tensor.data + at * sizeof(float), sizeof(float));
      continue;
    }
    uint16_t bits;
    std::memcpy(&bits, tensor.data + at * sizeof(bits), sizeof(bits));
    out[i] = tensor.dtype == Dtype::kF16 ? ToF32(F16{bits}) : ToF32(BF16{bits});
  }
  return out;
}

}  // namespace

absl::Status WeightLoader::AllocatePanels() {
  std::vector<std::pair<Slot*, size_t>> slots;  // With where they begin.
  size_t bytes = 0;
  std::map<const Linear*, size_t> all;  // Panels by product.
  for (Slot& slot : slots_) {
    if (slot.is_matrix() && !slot.in_rows() && !slot.stacked && !slot.empty()) {
      const size_t alignment = slot.kept && MayMap(slot.form) ? PageBytes() : kCacheLineBytes;
      bytes = RoundUp(bytes, alignment);
      slots.emplace_back(&slot, bytes);
      bytes = RoundUp(bytes + slot.form.bytes, alignment);
      all[slot.product] += slot.layout.panels();
    }
  }
  RETURN_IF_ERROR(panels_->Allocate(bytes, "weights"));
  std::map<const Linear*, size_t> before;
  for (const auto& [slot, at] : slots) {
    const std::span<uint8_t> panels(panels_->as() + at, slot->form.bytes);
    slot->panels->UseMemory(panels);
    if (placer_ != nullptr && slot->product != nullptr) {
      placer_->Place(panels, slot->layout.panel_bytes, before[slot->product], all[slot->product]);
      before[slot->product] += slot->layout.panels();
    }
  }
  return absl::OkStatus();
}

uint64_t WeightLoader::AlignedBytes(uint64_t alignment) const {
  uint64_t bytes = 0;
  for (const Slot& slot : slots_) {
    bytes += RoundUp(slot.is_matrix() ? slot.form.bytes : slot.shape[0] * sizeof(float), alignment);
  }
  return bytes;
}

void WeightLoader::AddMissing(std::set<std::string>* names) const {
  for (const Slot& slot : slots_) {
    if (!slot.kept) {
      names->insert(slot.names.begin(), slot.names.end());
    }
  }
}

bool WeightLoader::MayMap(const PackedForm& form) const {
  constexpr size_t kLeastPages = 256;
  return may_map_ && form.bytes >= kLeastPages * PageBytes();
}

absl::Status WeightLoader::Fetch(const PackedForm& form, std::span<uint8_t> out, ThreadPool* pool) {
  const SplitFn split = [pool](size_t count, const auto& part) { pool->Split(count, part); };
  if (!MayMap(form)) {
    return store_->Read(form, out, split);
  }
  ASSIGN_OR_RETURN(const bool mapped, store_->Map(form, out, split));
  if (mapped) {
    mapped_->push_back(out);
  }
  return absl::OkStatus();
}

absl::Status WeightLoader::Restore(const Slot& slot, ThreadPool* pool) {
  const ReadFn read = [&](std::span<uint8_t> out) { return Fetch(slot.form, out, pool); };
  return slot.in_rows() ? slot.rows->Restore(slot.tensor.dtype, slot.shape[0], slot.shape[1], read)
                        : slot.panels->Restore(slot.layout, read);
}

absl::Status WeightLoader::Pack(Slot* slot, const Kernels& kernels, ThreadPool* pool) {
  // Rows in another order are used up only when all are.
  const bool in_order = slot->order.head_rows == 0;
  const UsedFn used = [&](size_t bytes) {
    if (in_order || bytes == slot->tensor.bytes) {
      ReleaseRows(slot->name, *slot, slot->tensor, bytes);
    }
  };
  if (slot->affine.has_value()) {
    slot->affine->weight.data = slot->tensor.data;
    return slot->panels->PackAffine(*slot->affine, pool, used);
  }
  if (slot->quantize.has_value()) {
    return slot->panels->Quantize(slot->tensor, *slot->quantize, kernels, pool, used, slot->order);
  }
  if (slot->blocks) {
    return Annotate(slot->panels->PackBlocks(slot->tensor, pool, used, slot->order),
                    "tensor " + slot->name);
  }
  if (slot->transposed || (slot->as_stored && IsBlocks(slot->tensor.dtype))) {
    TensorView tensor = slot->tensor;
    std::vector<float> floats;
    if (IsBlocks(tensor.dtype)) {
      floats = Decoded(tensor);
      tensor.dtype = Dtype::kF32;
      tensor.data = reinterpret_cast<const uint8_t*>(floats.data());
      tensor.bytes = floats.size() * sizeof(float);
    }
    std::vector<uint8_t> bytes;
    if (slot->transposed) {
      bytes = Transposed(tensor);
      tensor.data = bytes.data();
      std::swap(tensor.shape[0], tensor.shape[1]);
    }
    RETURN_IF_ERROR(slot->panels->Pack(tensor, pool));
    used(slot->tensor.bytes);
    return absl::OkStatus();
  }
  return slot->in_rows() ? slot->rows->Copy(slot->tensor, pool, used)
                         : slot->panels->Pack(slot->tensor, pool, used, slot->order);
}

absl::Status WeightLoader::LoadSlot(Slot* slot, const Kernels& kernels, ThreadPool* pool) {
  if (slot->empty()) {
    return absl::OkStatus();
  }
  if (slot->kept) {
    absl::Status status = Restore(*slot, pool);
    if (status.ok() || absl::IsResourceExhausted(status)) {
      return status;
    }
    RETURN_IF_ERROR(source_.Prepare(slot->names));
  }
  RETURN_IF_ERROR(MakeSlot(slot, kernels, pool));
  if (store_ != nullptr && !slot->form.key.empty()) {
    store_->Write(slot->form, slot->in_rows() ? slot->rows->packed() : slot->panels->packed());
  }
  return absl::OkStatus();
}

absl::Status WeightLoader::MakeSlot(Slot* slot, const Kernels& kernels, ThreadPool* pool) {
  ASSIGN_OR_RETURN(slot->tensor, FindRows(slot->name, *slot));
  if (slot->affine.has_value()) {
    ASSIGN_OR_RETURN(slot->affine->scales, FindRows(slot->names[1], *slot));
    ASSIGN_OR_RETURN(slot->affine->biases, FindRows(slot->names[2], *slot));
  }
  if (slot->is_matrix()) {
    RETURN_IF_ERROR(Pack(slot, kernels, pool));
  } else {
    *slot->vector = ToFloats(slot->tensor, slot->order);
    ReleaseRows(slot->name, *slot, slot->tensor, slot->tensor.bytes);
  }
  if (slot->affine.has_value()) {
    ReleaseRows(slot->names[1], *slot, slot->affine->scales, slot->affine->scales.bytes);
    ReleaseRows(slot->names[2], *slot, slot->affine->biases, slot->affine->biases.bytes);
  }
  return absl::OkStatus();
}

absl::Status WeightLoader::Load(const Kernels& kernels, ThreadPool* pool,
                                const LoadProgressFn& progress) {
  std::set<std::string> names;  // Parts of one tensor name it once.
  AddMissing(&names);
  RETURN_IF_ERROR(source_.Prepare({names.begin(), names.end()}));
  return LoadPrepared(kernels, pool, progress);
}

absl::Status WeightLoader::LoadPrepared(const Kernels& kernels, ThreadPool* pool,
                                        const LoadProgressFn& progress) {
  RETURN_IF_ERROR(AllocatePanels());
  uint64_t done = 0;
  const auto report = [&] {
    if (progress) {
      progress(done, total_bytes_);
    }
  };
  report();
  const auto loaded = [&](const Slot& slot) {
    done += slot.source_bytes;
    report();
  };
  for (size_t part = 0; part < part_ends_.size(); ++part) {
    RETURN_IF_ERROR(LoadPart(part, kernels, pool, loaded));
  }
  return absl::OkStatus();
}

absl::Status WeightLoader::LoadPart(size_t part, const Kernels& kernels, ThreadPool* pool,
                                    const std::function<void(const Slot&)>& done) {
  size_t i = part == 0 ? 0 : part_ends_[part - 1];
  auto stack = std::find_if(stacks_.begin(), stacks_.end(),
                            [i](const Stack& stack) { return stack.first >= i; });
  while (i < part_ends_[part]) {
    if (stack != stacks_.end() && stack->first == i) {
      RETURN_IF_ERROR(LoadStack(*stack, kernels, pool, done));
      i = stack->end;
      ++stack;
      continue;
    }
    RETURN_IF_ERROR(LoadSlot(&slots_[i], kernels, pool));
    done(slots_[i]);
    ++i;
  }
  return absl::OkStatus();
}

absl::Status WeightLoader::AddSources(std::map<std::string, uint64_t>* bytes) const {
  for (const Slot& slot : slots_) {
    for (const std::string& name : slot.names) {
      if (!bytes->contains(name)) {
        ASSIGN_OR_RETURN(const TensorInfo info, source_.Describe(name));
        bytes->emplace(name, info.bytes);
      }
    }
  }
  return absl::OkStatus();
}

absl::Status WeightLoader::LoadRanks(std::span<const std::unique_ptr<WeightLoader>> ranks,
                                     const Kernels& kernels, ThreadPool* pool,
                                     const LoadProgressFn& progress) {
  if (ranks[0]->rank_.alone) {
    return ranks[0]->Load(kernels, pool, progress);
  }
  const TensorSource& source = ranks[0]->source_;
  std::set<std::string> missing;
  std::map<std::string, uint64_t> sources;
  std::map<std::string, size_t> uses;  // Slots that are yet to be made of a tensor.
  for (const std::unique_ptr<WeightLoader>& rank : ranks) {
    rank->AddMissing(&missing);
    RETURN_IF_ERROR(rank->AddSources(&sources));
    for (const Slot& slot : rank->slots_) {
      for (const std::string& name : slot.names) {
        ++uses[name];
      }
    }
  }
  uint64_t total = 0;
  for (const auto& [name, bytes] : sources) {
    total += bytes;
  }
  RETURN_IF_ERROR(source.Prepare({missing.begin(), missing.end()}));
  uint64_t done_bytes = 0;
  const auto report = [&] {
    if (progress) {
      progress(done_bytes, total);
    }
  };
  report();
  for (const std::unique_ptr<WeightLoader>& rank : ranks) {
    RETURN_IF_ERROR(rank->AllocatePanels());
  }
  for (size_t part = 0; part < ranks[0]->part_ends_.size(); ++part) {
    for (const std::unique_ptr<WeightLoader>& rank : ranks) {
      RETURN_IF_ERROR(rank->LoadPart(part, kernels, pool, [&](const Slot& slot) {
        for (const std::string& name : slot.names) {
          if (--uses[name] > 0) {
            continue;
          }
          const uint64_t bytes = sources[name];
          if (missing.contains(name)) {
            source.Release(name, bytes);
          }
          done_bytes += bytes;
          report();
        }
      }));
    }
  }
  return absl::OkStatus();
}

}  // namespace strata::cpu
