// Rows of logits as a safetensors file, written as they come.
#ifndef STRATA_CLI_LOGITS_FILE_H_
#define STRATA_CLI_LOGITS_FILE_H_

#include <cstdint>
#include <fstream>
#include <string>
#include <vector>

#include "absl/status/status.h"

namespace strata::cli {

// One tensor `logits`, float32 [rows, columns]. Under FILE.partial until it is whole. One thread.
class LogitsFile {
 public:
  explicit LogitsFile(std::string path);
  ~LogitsFile();  // Removes what is not whole.
  LogitsFile(const LogitsFile&) = delete;
  LogitsFile& operator=(const LogitsFile&) = delete;

  // PERMISSION_DENIED when the file cannot be made.
  absl::Status Open();
  // `values` holds whole rows of `columns`, the same at every call.
  absl::Status Append(const std::vector<float>& values, uint32_t columns);
  absl::Status Finish();

 private:
  absl::Status WriteError() const;

  const std::string path_;
  const std::string partial_;
  std::ofstream out_;
  bool open_ = false;
  uint64_t values_ = 0;
  uint32_t columns_ = 0;
};

}  // namespace strata::cli

#endif  // STRATA_CLI_LOGITS_FILE_H_
