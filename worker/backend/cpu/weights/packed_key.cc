#include "worker/backend/cpu/weights/packed_key.h"

#include "absl/strings/str_cat.h"
#include "common/check.h"
#include "common/digest.h"

namespace strata::cpu {
namespace {

// Counts up whenever packing makes other bytes of the same tensors (packed_store_test.cc notices):
// files of the version before are then never read again, and evicted in time.
constexpr char kPackingVersion[] = "cpu-panels-1";

std::string KeyOf(const std::string& format, const PanelView& layout,
                  const std::vector<Dtype>& dtypes, const std::vector<std::string>& sha256) {
  STRATA_CHECK(dtypes.size() == sha256.size());
  std::string text = absl::StrCat(kPackingVersion, " ", format, " ", layout.outputs, " outputs ",
                                  layout.inputs, " inputs");
  for (size_t i = 0; i < sha256.size(); ++i) {
    if (sha256[i].empty()) {
      return "";
    }
    absl::StrAppend(&text, " ", DtypeName(dtypes[i]), " ", sha256[i]);
  }
  return Sha256Hex(text);
}

}  // namespace

std::string PanelsKey(const PanelView& layout, const std::vector<Dtype>& dtypes,
                      const std::vector<std::string>& sha256, uint64_t first_row, size_t head_rows,
                      bool transposed) {
  std::string format = WeightFormatName(layout.format);
  if (layout.group != 0) {
    absl::StrAppend(&format, " groups of ", layout.group, " scales ",
                    DtypeName(layout.scale_dtype));
  }
  if (head_rows != 0) {
    absl::StrAppend(&format, " from pairs in heads of ", head_rows);
  }
  if (first_row != 0) {
    absl::StrAppend(&format, " from row ", first_row);
  }
  if (transposed) {
    absl::StrAppend(&format, " transposed");
  }
  return KeyOf(format, layout, dtypes, sha256);
}

std::string RowsKey(const PanelView& layout, const std::vector<Dtype>& dtypes,
                    const std::vector<std::string>& sha256) {
  return KeyOf("rows", layout, dtypes, sha256);
}

std::string StackKey(const std::vector<std::string>& keys) {
  std::string text = absl::StrCat(kPackingVersion, " stack");
  for (const std::string& key : keys) {
    if (key.empty()) {
      return "";
    }
    absl::StrAppend(&text, " ", key);
  }
  return Sha256Hex(text);
}

}  // namespace strata::cpu
