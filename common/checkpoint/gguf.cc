#include "common/checkpoint/gguf.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/checkpoint/file_reader.h"
#include "common/checkpoint/json_reader.h"
#include "common/model/block_formats.h"
#include "common/status.h"

namespace strata {
namespace {

static_assert(std::endian::native == std::endian::little, "files are read as they lie");

constexpr uint64_t kMaxNameBytes = 65535;  // Of keys, as the format says.
constexpr uint32_t kMaxRank = 4;
constexpr uint64_t kMaxAlignment = uint64_t{1} << 20;
// The least that a key-value and a tensor's info take.
constexpr uint64_t kLeastValueBytes = 8 + 4 + 1;
constexpr uint64_t kLeastTensorBytes = 8 + 4 + 8 + 4 + 8;
constexpr size_t kFirstReadBytes = size_t{16} << 20;

Error InvalidFile(std::string_view file, std::string_view problem) {
  return Error(absl::StatusCode::kInvalidArgument, "INVALID_GGUF",
               absl::StrCat(std::string(file), ": ", std::string(problem)));
}

// Of a value of fixed size; 0 for strings and lists.
uint64_t SizeOf(GgufType type) {
  switch (type) {
    case GgufType::kU8:
    case GgufType::kI8:
    case GgufType::kBool:
      return 1;
    case GgufType::kU16:
    case GgufType::kI16:
      return 2;
    case GgufType::kU32:
    case GgufType::kI32:
    case GgufType::kF32:
      return 4;
    case GgufType::kU64:
    case GgufType::kI64:
    case GgufType::kF64:
      return 8;
    default:
      return 0;
  }
}

// ggml's numbers of types.
struct TypeRow {
  uint32_t number;
  const char* name;
  std::optional<Dtype> dtype;  // Nothing: not supported.
};
constexpr TypeRow kTypes[] = {
    {0, "F32", Dtype::kF32},        {1, "F16", Dtype::kF16},       {2, "Q4_0", Dtype::kQ4_0},
    {3, "Q4_1", Dtype::kQ4_1},      {6, "Q5_0", Dtype::kQ5_0},     {7, "Q5_1", Dtype::kQ5_1},
    {8, "Q8_0", Dtype::kQ8_0},      {9, "Q8_1", std::nullopt},     {10, "Q2_K", Dtype::kQ2_K},
    {11, "Q3_K", Dtype::kQ3_K},     {12, "Q4_K", Dtype::kQ4_K},    {13, "Q5_K", Dtype::kQ5_K},
    {14, "Q6_K", Dtype::kQ6_K},     {15, "Q8_K", std::nullopt},    {16, "IQ2_XXS", std::nullopt},
    {17, "IQ2_XS", std::nullopt},   {18, "IQ3_XXS", std::nullopt}, {19, "IQ1_S", std::nullopt},
    {20, "IQ4_NL", Dtype::kIQ4_NL}, {21, "IQ3_S", std::nullopt},   {22, "IQ2_S", std::nullopt},
    {23, "IQ4_XS", Dtype::kIQ4_XS}, {24, "I8", std::nullopt},      {25, "I16", std::nullopt},
    {26, "I32", std::nullopt},      {27, "I64", std::nullopt},     {28, "F64", std::nullopt},
    {29, "IQ1_M", std::nullopt},    {30, "BF16", Dtype::kBF16},    {34, "TQ1_0", std::nullopt},
    {35, "TQ2_0", std::nullopt},    {39, "MXFP4", Dtype::kMXFP4},  {40, "NVFP4", std::nullopt},
};

class Parser {
 public:
  Parser(std::string_view head, uint64_t file_bytes, std::string_view file)
      : head_(head), file_bytes_(file_bytes), file_(file) {}

  absl::StatusOr<GgufHeader> Parse() {
    uint64_t tensors = 0, values = 0;
    RETURN_IF_ERROR(ReadStart(&tensors, &values));
    for (uint64_t i = 0; i < values; ++i) {
      RETURN_IF_ERROR(ReadValue());
    }
    for (uint64_t i = 0; i < tensors; ++i) {
      RETURN_IF_ERROR(ReadTensor());
    }
    RETURN_IF_ERROR(PlaceTensors());
    return std::move(header_);
  }

 private:
  // The next bytes; `what` they are of stands in the error.
  absl::StatusOr<std::string_view> Take(uint64_t bytes, std::string_view what) {
    if (bytes > file_bytes_ - position_) {
      return InvalidFile(
          file_, absl::StrCat(std::string(what), " needs ", bytes, " bytes where the file has ",
                              file_bytes_ - position_, " left"));
    }
    if (bytes > head_.size() - position_) {
      return Error(
          absl::StatusCode::kOutOfRange, "HEADER_GOES_ON",
          absl::StrCat(std::string(file_), ": the header goes on behind ", head_.size(), " bytes"));
    }
    const std::string_view taken = head_.substr(position_, bytes);
    position_ += bytes;
    return taken;
  }
  template <typename Value>
  absl::Status Read(std::string_view what, Value* value) {
    ASSIGN_OR_RETURN(const std::string_view taken, Take(sizeof(Value), what));
    std::memcpy(value, taken.data(), sizeof(Value));
    return absl::OkStatus();
  }
  absl::StatusOr<std::string_view> ReadString(std::string_view what) {
    uint64_t length = 0;
    RETURN_IF_ERROR(Read(what, &length));
    return Take(length, what);
  }
  absl::StatusOr<std::string_view> ReadName(std::string_view what) {
    ASSIGN_OR_RETURN(const std::string_view name, ReadString(what));
    if (name.empty() || name.size() > kMaxNameBytes) {
      return InvalidFile(file_, absl::StrCat(std::string(what), " has ", name.size(), " bytes"));
    }
    return name;
  }

  absl::Status ReadStart(uint64_t* tensors, uint64_t* values) {
    ASSIGN_OR_RETURN(const std::string_view magic, Take(4, "the magic number"));
    if (magic != "GGUF") {
      return InvalidFile(file_, "does not begin with GGUF");
    }
    uint32_t version = 0;
    RETURN_IF_ERROR(Read("the version", &version));
    if (version != 3 && version != 2) {  // They differ in the byte order's name alone.
      const bool swapped = version != 0 && version % 0x10000 == 0;
      return Error(absl::StatusCode::kUnimplemented, "UNSUPPORTED_FORMAT",
                   absl::StrCat(std::string(file_), swapped ? " is big-endian" : " is of version ",
                                swapped ? "" : absl::StrCat(version),
                                "; little-endian GGUF version 3 is supported"));
    }
    RETURN_IF_ERROR(Read("the number of tensors", tensors));
    RETURN_IF_ERROR(Read("the number of key-values", values));
    const uint64_t left = file_bytes_ - position_;
    if (*tensors > left / kLeastTensorBytes || *values > left / kLeastValueBytes) {
      return InvalidFile(
          file_, absl::StrCat("counts ", *tensors, " tensors and ", *values,
                              " key-values, more than its ", file_bytes_, " bytes could hold"));
    }
    return absl::OkStatus();
  }

  // Strings one after another; their total is what is taken.
  absl::StatusOr<std::string_view> TakeStrings(uint64_t count, const std::string& what) {
    const size_t begin = position_;
    for (uint64_t i = 0; i < count; ++i) {
      RETURN_IF_ERROR(ReadString(what).status());
    }
    return head_.substr(begin, position_ - begin);
  }

  absl::Status ReadValue() {
    ASSIGN_OR_RETURN(const std::string_view key, ReadName("a key"));
    const std::string what = "key " + Quoted(key);
    uint32_t type = 0;
    RETURN_IF_ERROR(Read(what, &type));
    GgufValue value;
    if (type == static_cast<uint32_t>(GgufType::kArray)) {
      value.is_list = true;
      RETURN_IF_ERROR(Read(what, &type));
      RETURN_IF_ERROR(Read(what, &value.count));
    }
    value.type = static_cast<GgufType>(type);
    const uint64_t size = SizeOf(value.type);
    if (size == 0 && value.type != GgufType::kString) {
      return InvalidFile(file_, absl::StrCat(what, " has values of the unknown type ", type));
    }
    const uint64_t least = size != 0 ? size : sizeof(uint64_t);
    if (value.is_list && value.count > (file_bytes_ - position_) / least) {
      return InvalidFile(file_, absl::StrCat(what, " has a list of ", value.count,
                                             " values, more than the file could hold"));
    }
    if (size != 0) {
      ASSIGN_OR_RETURN(value.bytes, Take(value.count * size, what));
    } else if (value.is_list) {
      ASSIGN_OR_RETURN(value.bytes, TakeStrings(value.count, what));
    } else {
      ASSIGN_OR_RETURN(value.bytes, ReadString(what));
    }
    if (!header_.values.emplace(key, value).second) {
      return InvalidFile(file_, what + " is there twice");
    }
    return absl::OkStatus();
  }

  absl::Status ReadTensor() {
    GgufTensor tensor;
    ASSIGN_OR_RETURN(tensor.name, ReadName("a tensor's name"));
    const std::string what = "tensor " + Quoted(tensor.name);
    uint32_t rank = 0, type = 0;
    RETURN_IF_ERROR(Read(what, &rank));
    if (rank == 0 || rank > kMaxRank) {
      return InvalidFile(file_,
                         absl::StrCat(what, " has ", rank, " dimensions, not 1 to ", kMaxRank));
    }
    tensor.shape.resize(rank);
    for (uint32_t i = rank; i-- > 0;) {
      RETURN_IF_ERROR(Read(what, &tensor.shape[i]));
      if (tensor.shape[i] == 0) {
        return InvalidFile(file_, what + " has a dimension of 0");
      }
    }
    RETURN_IF_ERROR(Read(what, &type));
    RETURN_IF_ERROR(Read(what, &tensor.offset));
    RETURN_IF_ERROR(SetDtype(what, type, &tensor));
    header_.tensors.push_back(std::move(tensor));
    return absl::OkStatus();
  }

  absl::Status SetDtype(const std::string& what, uint32_t number, GgufTensor* tensor) const {
    const auto* const row = std::find_if(std::begin(kTypes), std::end(kTypes),
                                         [&](const TypeRow& r) { return r.number == number; });
    if (row == std::end(kTypes)) {
      return InvalidFile(file_, absl::StrCat(what, " is of the unknown type ", number));
    }
    if (!row->dtype.has_value()) {
      return Error(absl::StatusCode::kUnimplemented, "UNSUPPORTED_DTYPE",
                   absl::StrCat(std::string(file_), ": type ", row->name, " of ", what,
                                " is not supported yet"))
          .Hint("use F32, F16, BF16, Q8_0, Q4_0, Q4_1, Q5_0, Q5_1, Q4_K, Q5_K or Q6_K");
    }
    tensor->dtype = *row->dtype;
    const std::optional<uint64_t> bytes = TensorBytes(tensor->dtype, tensor->shape);
    if (!bytes.has_value()) {
      return InvalidFile(
          file_, absl::StrCat(what, " has shape [", absl::StrJoin(tensor->shape, ", "),
                              "], which overflows or is no whole number of blocks of ", row->name));
    }
    tensor->bytes = *bytes;
    return absl::OkStatus();
  }

  absl::StatusOr<uint64_t> Alignment() {
    GgufReader reader(&header_);
    const uint64_t alignment = reader.Uint("general.alignment", 1, kMaxAlignment, 32);
    RETURN_IF_ERROR(reader.status());
    if (!std::has_single_bit(alignment)) {
      return InvalidFile(file_, absl::StrCat("key \"general.alignment\" is ", alignment,
                                             ", which is no power of two"));
    }
    return alignment;
  }

  // Offsets in the file for those in the data, which lie within it and do not overlap.
  absl::Status PlaceTensors() {
    ASSIGN_OR_RETURN(const uint64_t alignment, Alignment());
    const uint64_t start = (position_ + alignment - 1) / alignment * alignment;
    std::vector<GgufTensor*> order;
    for (GgufTensor& tensor : header_.tensors) {
      const std::string what = "tensor " + Quoted(tensor.name);
      if (tensor.offset % alignment != 0) {
        return InvalidFile(file_, absl::StrCat(what, " begins at ", tensor.offset,
                                               ", no multiple of the alignment ", alignment));
      }
      const uint64_t data = file_bytes_ < start ? 0 : file_bytes_ - start;
      if (tensor.offset > data || tensor.bytes > data - tensor.offset) {
        return InvalidFile(file_,
                           absl::StrCat(what, " has ", tensor.bytes, " bytes from ", tensor.offset,
                                        " on where the file has ", data, " bytes of data"));
      }
      tensor.offset += start;
      order.push_back(&tensor);
    }
    std::sort(order.begin(), order.end(), [](const GgufTensor* a, const GgufTensor* b) {
      return std::pair(a->offset, a->bytes) < std::pair(b->offset, b->bytes);
    });
    for (size_t i = 1; i < order.size(); ++i) {
      if (order[i]->offset < order[i - 1]->offset + order[i - 1]->bytes) {
        return InvalidFile(file_, absl::StrCat("tensors ", Quoted(order[i - 1]->name), " and ",
                                               Quoted(order[i]->name), " overlap"));
      }
    }
    return absl::OkStatus();
  }

  const std::string_view head_;
  const uint64_t file_bytes_;
  const std::string_view file_;
  size_t position_ = 0;
  GgufHeader header_;
};

}  // namespace

absl::StatusOr<GgufHeader> ParseGgufHeader(std::string_view head, uint64_t file_bytes,
                                           std::string_view file) {
  return Parser(head.substr(0, std::min<uint64_t>(head.size(), file_bytes)), file_bytes, file)
      .Parse();
}

absl::StatusOr<GgufFile> ReadGgufFile(const std::string& path) {
  ASSIGN_OR_RETURN(const FileReader file, FileReader::Open(path));
  const std::string name = path.substr(path.rfind('/') + 1);
  GgufFile out;
  for (uint64_t wanted = kFirstReadBytes;; wanted *= 4) {
    wanted = std::min<uint64_t>(wanted, kMaxGgufHeaderBytes);
    out.head.resize(std::min<uint64_t>(wanted, file.size()));
    RETURN_IF_ERROR(file.ReadAt(0, out.head.data(), out.head.size()));
    auto header = ParseGgufHeader(out.head, file.size(), name);
    if (header.ok()) {
      out.header = *std::move(header);
      return out;
    }
    if (header.status().code() != absl::StatusCode::kOutOfRange) {
      return header.status();
    }
    if (wanted == kMaxGgufHeaderBytes) {
      return InvalidFile(name, "the header is too long")
          .Limit(absl::StrCat("header_bytes=", kMaxGgufHeaderBytes));
    }
  }
}

}  // namespace strata
