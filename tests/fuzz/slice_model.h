// The step rule for the items of one sequence, whole or in slices, restated over plain lists.
#ifndef STRATA_TESTS_FUZZ_SLICE_MODEL_H_
#define STRATA_TESTS_FUZZ_SLICE_MODEL_H_

#include <algorithm>
#include <cstdint>
#include <limits>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "common/check.h"
#include "tests/worker/runner/chain.h"
#include "worker/runner/sequence_table.h"

namespace strata::testing {

// Tokens that some layers have yet to see.
struct SlicePart {
  uint32_t position = 0;
  uint32_t rows = 0;
  uint32_t next = 0;  // Layer.
};

class SliceModel {
 public:
  static constexpr uint32_t kToTheEnd = std::numeric_limits<uint32_t>::max();

  SliceModel() = default;
  SliceModel(uint32_t layers, uint32_t context) : layers_(layers), context_(context) {}

  bool exists() const { return exists_; }
  const std::vector<uint32_t>& ids() const { return ids_; }
  const std::vector<SlicePart>& parts() const { return parts_; }  // By position, up to length().
  uint32_t length() const { return static_cast<uint32_t>(ids_.size()); }
  uint32_t computed() const { return parts_.empty() ? length() : parts_.front().position; }

  // A slice that goes on with `part`, or begins the tokens `more` after all others.
  v1::StepItem Continue(const v1::SequenceName& name, const SlicePart& part, uint32_t end) const {
    return Cut(Item(name, ids_, part.position, part.position + part.rows), part.next, end);
  }
  v1::StepItem Begin(const v1::SequenceName& name, std::span<const uint32_t> more,
                     uint32_t end) const {
    std::vector<uint32_t> ids = ids_;
    ids.insert(ids.end(), more.begin(), more.end());
    return Cut(Item(name, ids, length(), static_cast<uint32_t>(ids.size())), 0, end);
  }

  void BeginStep() {
    named_in_slices_ = named_whole_ = false;
    moved_.clear();
  }

  // The reason that the item is refused for, by a stage that has pages and room for it; or none.
  std::string Judge(const v1::StepItem& item) const {
    const auto rows = static_cast<uint32_t>(item.token_ids_size());
    if (rows == 0) {
      return "NO_TOKENS";
    }
    if (!IsWhole(item) && (item.from_layer() > layers_ || item.end_layer() > layers_ ||
                           item.from_layer() >= EndOf(item))) {
      return "ITEM_SLICE";
    }
    if (item.rows_from() >= rows) {
      return "ROWS_FROM";
    }
    if (uint64_t{item.position()} + rows > context_) {
      return "CONTEXT_EXCEEDED";
    }
    if (named_whole_ || (named_in_slices_ && IsWhole(item)) || moved_.contains(item.position())) {
      return "SEQUENCE_TWICE";
    }
    if (!exists_ && (item.from_layer() > 0 || item.position() > 0)) {
      return "SEQUENCE_NOT_FOUND";
    }
    return item.from_layer() == 0 ? JudgeFirst(item) : JudgeFurther(item);
  }

  // Of an item that is computed.
  void Take(const v1::StepItem& item) {
    STRATA_CHECK(Judge(item).empty());
    (IsWhole(item) ? named_whole_ : named_in_slices_) = true;
    exists_ = spent_ = true;
    moved_.insert(item.position());
    if (item.from_layer() == 0) {
      ids_.insert(ids_.end(), item.token_ids().begin(), item.token_ids().end());
      parts_.push_back(
          {item.position(), static_cast<uint32_t>(item.token_ids_size()), EndOf(item)});
    }
    for (SlicePart& part : parts_) {
      if (part.position == item.position()) {
        part.next = EndOf(item);
      }
    }
    std::erase_if(parts_, [](const SlicePart& part) { return part.next == kToTheEnd; });
  }

  // Of a fork or truncation, unless it needs a window that was freed.
  std::string JudgeCut(uint32_t length, Fingerprint fingerprint) const {
    if (!exists_) {
      return "SEQUENCE_NOT_FOUND";
    }
    if (length > computed()) {
      return "POSITION_MISMATCH";
    }
    return fingerprint == FingerprintOf(std::span(ids_).first(length)) ? ""
                                                                       : "FINGERPRINT_MISMATCH";
  }
  void Truncate(uint32_t length) {
    ids_.resize(length);
    parts_.clear();
  }
  void Release() {
    ids_.clear();
    parts_.clear();
    exists_ = false;
  }

  // What the stage of layers [first, last] must hold of it.
  void CheckHeld(const v1::SequenceName& name, uint32_t first, uint32_t last,
                 SequenceTable* table) const {
    const Sequence* held = table->Find(name.request_id(), name.generation());
    STRATA_CHECK((held != nullptr) == exists_);
    if (held == nullptr) {
      return;
    }
    STRATA_CHECK(held->ids == ids_ && held->fingerprint == FingerprintOf(ids_));
    STRATA_CHECK(held->committed_length <= computed());
    for (const PageTable& pages : held->tables) {
      STRATA_CHECK(pages.first_page + pages.pages.size() ==
                   (length() + kPageTokens - 1) / kPageTokens);
    }
    STRATA_CHECK(held->unfinished.size() == parts_.size());
    for (size_t i = 0; i < parts_.size(); ++i) {
      const UnfinishedItem& item = held->unfinished[i];
      const SlicePart& part = parts_[i];
      STRATA_CHECK(item.position == part.position && item.rows == part.rows &&
                   item.next_layer == part.next);
      const bool here = first < part.next && part.next <= last + 1;
      STRATA_CHECK(item.parked.size() == (here ? size_t{part.rows} * kHashHidden : 0));
    }
  }

  static uint32_t EndOf(const v1::StepItem& item) {
    return item.end_layer() == 0 ? kToTheEnd : item.end_layer();
  }
  static bool IsWhole(const v1::StepItem& item) {
    return item.from_layer() == 0 && item.end_layer() == 0;
  }
  // Rows of a frame that pass into the stage whose first layer is `layer` > 0.
  static uint64_t RowsInto(const v1::StepFrame& frame, uint32_t layer) {
    uint64_t rows = 0;
    for (const v1::StepItem& item : frame.items()) {
      const bool passes = item.from_layer() <= layer && EndOf(item) > layer;
      rows += passes ? static_cast<uint64_t>(item.token_ids_size()) : 0;
    }
    return rows;
  }

 private:
  static v1::StepItem Cut(v1::StepItem item, uint32_t from, uint32_t end) {
    item.set_from_layer(from);
    item.set_end_layer(end == kToTheEnd ? 0 : end);
    return item;
  }

  std::string JudgeFirst(const v1::StepItem& item) const {
    if (!exists_ && spent_) {
      return "STALE_GENERATION";
    }
    if (item.position() != length()) {
      return "POSITION_MISMATCH";
    }
    if (item.fingerprint() != FingerprintOf(ids_)) {
      return "FINGERPRINT_MISMATCH";
    }
    return parts_.empty() || EndOf(item) <= parts_.back().next ? "" : "SLICE_MISMATCH";
  }

  std::string JudgeFurther(const v1::StepItem& item) const {
    uint32_t most = kToTheEnd;  // The layer that the tokens before have come to.
    for (const SlicePart& part : parts_) {
      if (part.position == item.position()) {
        const auto held = ids_.begin() + part.position;
        if (part.next != item.from_layer() || EndOf(item) > most ||
            !std::equal(item.token_ids().begin(), item.token_ids().end(), held, held + part.rows)) {
          return "SLICE_MISMATCH";
        }
        return item.fingerprint() == FingerprintOf(std::span(ids_).first(part.position))
                   ? ""
                   : "FINGERPRINT_MISMATCH";
      }
      most = part.next;
    }
    return "SLICE_MISMATCH";
  }

  uint32_t layers_ = 0;
  uint32_t context_ = 0;
  bool exists_ = false;
  bool spent_ = false;  // Its generation was created once.
  std::vector<uint32_t> ids_;
  std::vector<SlicePart> parts_;
  bool named_in_slices_ = false;  // By an item of this step.
  std::set<uint32_t> moved_;      // Positions of the items of this step.
  bool named_whole_ = false;
};

}  // namespace strata::testing

#endif  // STRATA_TESTS_FUZZ_SLICE_MODEL_H_
