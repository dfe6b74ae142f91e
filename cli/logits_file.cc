#include "cli/logits_file.h"

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <utility>

#include "common/status.h"

namespace strata::cli {
namespace {

// Room for the JSON header, which is written last, padded with spaces; the data after it is
// aligned to 8 bytes.
constexpr size_t kHeaderBytes = 248;

}  // namespace

LogitsFile::LogitsFile(std::string path) : path_(std::move(path)), partial_(path_ + ".partial") {}

LogitsFile::~LogitsFile() {
  if (open_) {
    out_.close();
    std::remove(partial_.c_str());
  }
}

absl::Status LogitsFile::WriteError() const {
  return Error(
             absl::StatusCode::kPermissionDenied, "CANNOT_WRITE",
             "cannot write " + path_ + (errno != 0 ? std::string(": ") + std::strerror(errno) : ""))
      .Hint("give --logits a file in a folder that can be written to");
}

absl::Status LogitsFile::Open() {
  errno = 0;
  out_.open(partial_, std::ios::binary | std::ios::trunc);
  if (!out_.is_open()) {
    return WriteError();
  }
  open_ = true;
  out_ << std::string(sizeof(uint64_t) + kHeaderBytes, ' ');
  return out_.good() ? absl::OkStatus() : WriteError();
}

absl::Status LogitsFile::Append(const std::vector<float>& values, uint32_t columns) {
  columns_ = columns;
  values_ += values.size();
  out_.write(reinterpret_cast<const char*>(values.data()),
             static_cast<std::streamsize>(values.size() * sizeof(float)));
  return out_.good() ? absl::OkStatus() : WriteError();
}

absl::Status LogitsFile::Finish() {
  const uint64_t rows = columns_ == 0 ? 0 : values_ / columns_;
  std::string header = "{\"logits\":{\"dtype\":\"F32\",\"shape\":[" + std::to_string(rows) + "," +
                       std::to_string(columns_) + "],\"data_offsets\":[0," +
                       std::to_string(values_ * sizeof(float)) + "]}}";
  header.resize(kHeaderBytes, ' ');
  std::string size;
  for (size_t i = 0; i < sizeof(uint64_t); ++i) {
    size += static_cast<char>((uint64_t{kHeaderBytes} >> (8 * i)) & 0xFF);
  }
  out_.seekp(0);
  out_ << size << header;
  out_.close();
  if (out_.fail() || std::rename(partial_.c_str(), path_.c_str()) != 0) {
    return WriteError();
  }
  open_ = false;
  return absl::OkStatus();
}

}  // namespace strata::cli
