// Rows of input embeddings from a safetensors file.
#ifndef STRATA_CLI_EMBEDDINGS_FILE_H_
#define STRATA_CLI_EMBEDDINGS_FILE_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "sdk/cpp/strata.h"

namespace strata::cli {

// The tensors `embeddings`, F32, F16 or BF16 [rows, hidden], and `positions`, I64, I32 or U32
// [rows], ascending; without `positions` the rows are the prompt's first ones. NOT_FOUND,
// PERMISSION_DENIED, or INVALID_ARGUMENT with what is wrong.
absl::StatusOr<std::vector<sdk::InputEmbedding>> ReadEmbeddingsFile(const std::string& path);

}  // namespace strata::cli

#endif  // STRATA_CLI_EMBEDDINGS_FILE_H_
