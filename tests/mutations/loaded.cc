#include "tests/mutations/loaded.h"

#include <algorithm>

#include "common/status.h"
#include "tests/worker/backend/forward.h"

namespace strata::testing {

absl::StatusOr<std::vector<float>> LogitsOfModel(Backend* backend, const ModelSpec& spec,
                                                 const TensorSource& weights) {
  // More than a page, and than the smallest windows.
  std::vector<uint32_t> ids(24);
  for (size_t i = 0; i < ids.size(); ++i) {
    ids[i] = static_cast<uint32_t>((7 * i + 3) % std::min<uint32_t>(spec.vocab, 200));
  }
  ForwardOptions options;
  options.context = 64;
  options.kv_tokens = 128;
  options.max_batch_tokens = 64;
  options.max_batch_items = 2;
  ASSIGN_OR_RETURN(const auto model, ForwardModel::Load(backend, spec, weights, options));
  ASSIGN_OR_RETURN(const std::vector<RowResult> rows, model->Run(ids));
  return LogitsOf(rows);
}

bool NamesOne(const std::string& said, const std::vector<std::string>& fields) {
  return said.find("tensor") != std::string::npos ||
         std::any_of(fields.begin(), fields.end(), [&](const std::string& field) {
           return !field.empty() && said.find(field) != std::string::npos;
         });
}

}  // namespace strata::testing
