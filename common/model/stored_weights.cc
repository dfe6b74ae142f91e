// Values of matrices that are stored quantized.
#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/model/block_formats.h"
#include "common/model/code_books.h"
#include "common/model/half.h"
#include "common/model/narrow_floats.h"
#include "common/model/stored_matrix.h"
#include "common/status.h"
#include "nlohmann/json.hpp"

namespace strata {
namespace {

constexpr uint32_t kWordBits = 32;
// Which 4 bits of a word of AWQ's an output has, by its number within the word.
constexpr uint32_t kAwqPlaces[] = {0, 4, 1, 5, 2, 6, 3, 7};
constexpr uint32_t kAwqBits = 4;
constexpr uint32_t kAwqWord = kWordBits / kAwqBits;
constexpr size_t kMostStateBytes = 4096;

uint32_t WordAt(const uint8_t* words, size_t index) {
  uint32_t word;
  std::memcpy(&word, words + index * sizeof(word), sizeof(word));
  return word;
}

uint32_t Part(uint32_t word, uint32_t bits, size_t place) {
  return word >> place * bits & ((1u << bits) - 1);
}

// Of AWQ's words [inputs, columns], each 8 outputs of an input: those of one column and of 8 inputs
// from `input` on, as words of 8 inputs of an output.
void TurnAwqWords(const uint8_t* codes, size_t input, size_t column, size_t columns,
                  uint32_t* turned) {
  std::fill(turned, turned + kAwqWord, 0);
  for (uint32_t i = 0; i < kAwqWord; ++i) {
    const uint32_t word = WordAt(codes, (input + i) * columns + column);
    for (uint32_t output = 0; output < kAwqWord; ++output) {
      turned[output] |= Part(word, kAwqBits, kAwqPlaces[output]) << i * kAwqBits;
    }
  }
}

// 1 in each place of a word.
uint32_t Ones(uint32_t bits) { return bits == 4 ? 0x11111111u : 0x01010101u; }

// Number `index` of a chain of numbers of `bits` bits, at most 8, whose words are `step` apart.
uint32_t InChain(const uint8_t* words, size_t step, size_t index, uint32_t bits) {
  const size_t bit = index * bits;
  const size_t word = bit / kWordBits;
  const size_t shift = bit % kWordBits;
  uint64_t two = WordAt(words, word * step);
  if (shift + bits > kWordBits) {
    two |= uint64_t{WordAt(words, (word + 1) * step)} << kWordBits;
  }
  return static_cast<uint32_t>(two >> shift & ((1u << bits) - 1));
}

// A row of them, one after another in `size` bytes.
void ReadChain(const uint8_t* from, size_t size, uint32_t bits, size_t count, uint8_t* codes) {
  if (bits == 8) {
    std::memcpy(codes, from, count);
    return;
  }
  const uint32_t mask = (1u << bits) - 1;
  for (size_t i = 0, bit = 0; i < count; ++i, bit += bits) {
    const size_t byte = bit / 8;
    const uint32_t two = from[byte] | (byte + 1 < size ? uint32_t{from[byte + 1]} << 8 : 0u);
    codes[i] = static_cast<uint8_t>(two >> bit % 8 & mask);
  }
}

float NumberAt(const StoredWeights::Bytes& bytes, size_t index) {
  switch (bytes.dtype) {
    case Dtype::kF32:
      return std::bit_cast<float>(WordAt(bytes.data, index));
    case Dtype::kF16:
      return HalfAt(bytes.data + index * sizeof(uint16_t));
    default:
      return Bfloat16At(bytes.data + index * sizeof(uint16_t));
  }
}

absl::Status Impossible(const StoredPart& part, const std::string& what) {
  return Error(absl::StatusCode::kInvalidArgument, "TENSOR_VALUE",
               absl::StrCat("tensor ", part.name, " ", what));
}

}  // namespace

StoredWeights::Bytes* StoredWeights::PlaceOf(const StoredMatrix& matrix, const StoredPart* part,
                                             Data* data) {
  const std::pair<const StoredPart*, Bytes*> places[] = {
      {&matrix.codes, &data->codes},
      {&matrix.scales, &data->scales},
      {&matrix.biases, &data->biases},
      {&matrix.zeros, &data->zeros},
      {&matrix.order, &data->order},
      {&matrix.tensor_scale, &data->tensor_scale},
      {&matrix.table, &data->table},
      {&matrix.state, &data->state},
      {&matrix.nested_scales, &data->nested_scales},
      {&matrix.nested_table, &data->nested_table},
  };
  return std::find_if(std::begin(places), std::end(places),
                      [&](const auto& place) { return place.first == part; })
      ->second;
}

StoredWeights::StoredWeights(const StoredMatrix& matrix, const Data& data)
    : matrix_(matrix), data_(data), kept_(matrix.Kept()) {
  if (matrix.scheme.method == QuantizationMethod::kNvfp4) {
    rounding_ = CodeRounding::kBfloat16;
  }
  constexpr float kMagnitudes[] = {0, 0.5f, 1, 1.5f, 2, 3, 4, 6};
  for (uint32_t code = 0; code < 256; ++code) {
    switch (matrix.kind) {
      case StoredCodes::kFloat4:
        values_[code] = (code & 8) != 0 ? -kMagnitudes[code & 7] : kMagnitudes[code & 7];
        break;
      case StoredCodes::kFloat8:
        values_[code] = Float8ToF32(static_cast<uint8_t>(code));
        break;
      case StoredCodes::kTable:
        values_[code] = NumberAt(data.table, code & 15);
        break;
      default:
        break;
    }
  }
}

absl::Status StoredWeights::Check() {
  RETURN_IF_ERROR(CheckOrder());
  RETURN_IF_ERROR(CheckTable());
  RETURN_IF_ERROR(CheckSigned());
  return ReadState();
}

absl::Status StoredWeights::CheckOrder() const {
  if (matrix_.order.name.empty()) {
    return absl::OkStatus();
  }
  for (size_t input = 0; input < matrix_.inputs; ++input) {
    const uint32_t group = WordAt(data_.order.data, input);
    if (group >= matrix_.groups() || (!matrix_.ordered && group != input / matrix_.group)) {
      return Impossible(
          matrix_.order,
          absl::StrCat("says group ", static_cast<int32_t>(group), " of input ", input, ", where ",
                       matrix_.ordered ? "there are " : "config.json says groups of ",
                       matrix_.ordered ? matrix_.groups() : matrix_.group,
                       matrix_.ordered ? " (by group_size)"
                       : matrix_.scheme.method == QuantizationMethod::kGptq
                           ? " in order (by desc_act, group_size)"
                           : " in order (by actorder, group_size)"));
    }
  }
  return absl::OkStatus();
}

absl::Status StoredWeights::CheckSigned() const {
  if (matrix_.kind != StoredCodes::kSigned || matrix_.bits == 8) {
    return absl::OkStatus();
  }
  const int middle = 1 << (matrix_.bits - 1);
  const size_t count = matrix_.rows() * matrix_.inputs;
  for (size_t i = 0; i < count; ++i) {
    const auto code = static_cast<int8_t>(data_.codes.data[i]);
    if (code < -middle || code >= middle) {
      return Impossible(matrix_.codes, absl::StrCat("has ", int{code}, ", which is no integer of ",
                                                    matrix_.bits, " bits (by num_bits)"));
    }
  }
  return absl::OkStatus();
}

// Blocks of codes have the values of their format.
absl::Status StoredWeights::CheckTable() const {
  if (matrix_.table.name.empty() || kept_.kind != KeptForm::Kind::kBlocks) {
    return absl::OkStatus();
  }
  const CodeBook& book = BookOf(kept_.blocks);
  for (size_t code = 0; code < book.values.size(); ++code) {
    if (!(values_[code] == book.values[code])) {
      return Impossible(matrix_.table,
                        absl::StrCat("says ", values_[code], " of code ", code,
                                     ", which is not what ", DtypeName(kept_.blocks), " has"));
    }
  }
  return absl::OkStatus();
}

absl::Status StoredWeights::ReadState() {
  if (matrix_.state.name.empty()) {
    return absl::OkStatus();
  }
  const auto wrong = [&](const std::string& what) { return Impossible(matrix_.state, what); };
  if (data_.state.size > kMostStateBytes) {
    return wrong(absl::StrCat("has ", data_.state.size, " bytes"));
  }
  const nlohmann::json state = nlohmann::json::parse(
      data_.state.data, data_.state.data + data_.state.size, nullptr, /*allow_exceptions=*/false);
  if (!state.is_object()) {
    return wrong("is no JSON object");
  }
  const auto field = [&](const char* name) {
    const auto found = state.find(name);
    return found == state.end() ? nlohmann::json() : *found;
  };
  const auto expect = [&](const char* name, const nlohmann::json& value) {
    return field(name) == value
               ? absl::OkStatus()
               : wrong(absl::StrCat(
                     "says ", name, " ",
                     field(name).dump(-1, ' ', true, nlohmann::json::error_handler_t::replace),
                     " where Strata reads ", value.dump()));
  };
  RETURN_IF_ERROR(expect("quant_type", matrix_.state.name.substr(matrix_.state.name.size() - 3)));
  RETURN_IF_ERROR(expect("blocksize", matrix_.group));
  RETURN_IF_ERROR(expect("shape", {matrix_.outputs, matrix_.inputs}));
  const nlohmann::json dtype = field("dtype");
  if (dtype == "bfloat16") {
    rounding_ = CodeRounding::kBfloat16;
  } else if (dtype == "float16") {
    rounding_ = CodeRounding::kHalf;
  } else {
    RETURN_IF_ERROR(expect("dtype", "float32"));
  }
  if (matrix_.nested_scales.name.empty()) {
    return absl::OkStatus();
  }
  constexpr uint64_t kNested = 256;
  RETURN_IF_ERROR(expect("nested_blocksize", kNested));
  nested_group_ = kNested;
  const nlohmann::json offset = field("nested_offset");
  if (!offset.is_number() || !std::isfinite(offset.get<double>())) {
    return wrong("says no nested_offset");
  }
  nested_offset_ = static_cast<float>(offset.get<double>());
  return absl::OkStatus();
}

size_t StoredWeights::GroupOf(size_t input) const {
  return matrix_.ordered ? WordAt(data_.order.data, input) : input / matrix_.group;
}

uint32_t StoredWeights::WordCodeAt(size_t output, size_t input) const {
  const uint32_t bits = matrix_.bits;
  const uint32_t a_word = kWordBits / bits;
  if (matrix_.scheme.method == QuantizationMethod::kAwq) {
    return Part(WordAt(data_.codes.data, input * matrix_.codes.shape[1] + output / a_word), bits,
                kAwqPlaces[output % a_word]);
  }
  return Part(WordAt(data_.codes.data, input / a_word * matrix_.outputs + output), bits,
              input % a_word);
}

void StoredWeights::ReadCodes(size_t row, uint8_t* codes) const {
  const size_t inputs = matrix_.inputs;
  const QuantizationMethod method = matrix_.scheme.method;
  if (method == QuantizationMethod::kAwq || method == QuantizationMethod::kGptq) {
    for (size_t input = 0; input < inputs; ++input) {
      codes[input] = static_cast<uint8_t>(WordCodeAt(row, input));
    }
    return;
  }
  if (matrix_.kind == StoredCodes::kTable) {
    for (size_t i = 0, at = row * inputs; i < inputs; ++i, ++at) {
      const uint8_t byte = data_.codes.data[at / 2];
      codes[i] = at % 2 == 0 ? byte >> 4 : byte & 15;
    }
    return;
  }
  const size_t row_bytes = data_.codes.size / matrix_.rows();
  const uint8_t* const from = data_.codes.data + row * row_bytes;
  const bool with_sign = matrix_.kind == StoredCodes::kSigned;
  ReadChain(from, row_bytes, with_sign ? 8 : matrix_.bits, inputs, codes);
  for (size_t i = 0; with_sign && i < inputs; ++i) {
    codes[i] = static_cast<uint8_t>(codes[i] + (1u << (matrix_.bits - 1)));
  }
}

int32_t StoredWeights::ZeroAt(size_t row, size_t group) const {
  const uint32_t bits = matrix_.bits;
  const uint32_t a_word = kWordBits / bits;
  const int32_t middle = 1 << (bits - 1);
  const uint8_t* const zeros = data_.zeros.data;
  if (matrix_.zeros.name.empty()) {
    return middle;
  }
  switch (matrix_.scheme.method) {
    case QuantizationMethod::kAwq:
      return static_cast<int32_t>(Part(WordAt(zeros, group * matrix_.zeros.shape[1] + row / a_word),
                                       bits, kAwqPlaces[row % a_word]));
    case QuantizationMethod::kGptq: {
      const uint32_t word = WordAt(zeros, group * matrix_.zeros.shape[1] + row / a_word);
      return static_cast<int32_t>(
          Part(matrix_.zeros_less_one ? word + Ones(bits) : word, bits, row % a_word));
    }
    case QuantizationMethod::kIntegers:
      return middle + static_cast<int8_t>(zeros[ScaleIndex(row, group)]);
    default:
      return static_cast<int32_t>(
          InChain(zeros + group * sizeof(uint32_t), matrix_.groups(), row, bits));
  }
}

size_t StoredWeights::ScaleIndex(size_t row, size_t group) const {
  const bool by_group = matrix_.scheme.method == QuantizationMethod::kAwq ||
                        matrix_.scheme.method == QuantizationMethod::kGptq;
  if (by_group) {
    return group * matrix_.outputs + row;
  }
  const size_t blocks = (matrix_.outputs + matrix_.per_scale - 1) / matrix_.per_scale;
  const size_t block = row / matrix_.outputs * blocks + row % matrix_.outputs / matrix_.per_scale;
  return block * matrix_.groups() + group;
}

float StoredWeights::NestedScaleAt(size_t index) const {
  if (nested_group_ == 0) {
    return NumberAt(data_.scales, index);
  }
  return NumberAt(data_.nested_table, data_.scales.data[index]) *
             NumberAt(data_.nested_scales, index / nested_group_) +
         nested_offset_;
}

float StoredWeights::ScaleAt(size_t row, size_t group) const {
  const size_t index = ScaleIndex(row, group);
  float scale = 0;
  switch (data_.scales.dtype) {
    case Dtype::kF8E4M3:
      scale = Float8ToF32(data_.scales.data[index]);
      break;
    case Dtype::kU8:
    case Dtype::kF8E8M0:
      scale = matrix_.exponents ? ExponentToF32(data_.scales.data[index])
                                : Float8ToF32(data_.scales.data[index]);
      break;
    default:
      scale = NumberAt(data_.scales, index);
  }
  if (matrix_.tensor_scale.name.empty()) {
    return scale * matrix_.tensor_factor;
  }
  const float of_tensor = NumberAt(data_.tensor_scale, row / matrix_.outputs);
  return matrix_.tensor_factor == 0 ? scale / of_tensor
                                    : scale * (of_tensor * matrix_.tensor_factor);
}

void StoredWeights::ReadWords(size_t first, size_t end, uint32_t* words) const {
  const uint32_t a_word = kWordBits / kept_.bits;
  const size_t row = matrix_.inputs / a_word;
  const bool same = kept_.bits == matrix_.bits && matrix_.kind == StoredCodes::kUnsigned;
  if (matrix_.scheme.method == QuantizationMethod::kGptq) {
    for (size_t j = 0; j < row; ++j) {
      for (size_t output = first; output < end; ++output) {
        words[(output - first) * row + j] = WordAt(data_.codes.data, j * matrix_.outputs + output);
      }
    }
  } else if (matrix_.scheme.method == QuantizationMethod::kAwq) {
    for (size_t j = 0; j < row; ++j) {
      for (size_t column = first / kAwqWord; column * kAwqWord < end; ++column) {
        uint32_t turned[kAwqWord];
        TurnAwqWords(data_.codes.data, j * kAwqWord, column, matrix_.codes.shape[1], turned);
        for (uint32_t i = 0; i < kAwqWord; ++i) {
          const size_t output = column * kAwqWord + i;
          if (output >= first && output < end) {
            words[(output - first) * row + j] = turned[i];
          }
        }
      }
    }
  } else if (same) {
    std::memcpy(words, data_.codes.data + first * row * sizeof(uint32_t),
                (end - first) * row * sizeof(uint32_t));
  } else {
    std::vector<uint8_t> codes(matrix_.inputs);
    for (size_t output = first; output < end; ++output) {
      ReadCodes(output, codes.data());
      for (size_t j = 0; j < row; ++j) {
        uint32_t word = 0;
        for (uint32_t i = 0; i < a_word; ++i) {
          word |= uint32_t{codes[j * a_word + i]} << i * kept_.bits;
        }
        *words++ = word;
      }
    }
  }
}

void StoredWeights::ReadScales(size_t first, size_t end, float* scales, float* biases) const {
  for (size_t row = first; row < end; ++row) {
    for (size_t input = 0; input < matrix_.inputs; input += kept_.group) {
      const size_t group = input / matrix_.group;
      const float scale = ScaleAt(row, group);
      *scales++ = scale;
      // Exact: a scale of 16 bits has 11 of mantissa, a zero 9 at most, and the middle is a power
      // of two.
      *biases++ = matrix_.biases.name.empty() ? -(scale * static_cast<float>(ZeroAt(row, group)))
                                              : NumberAt(data_.biases, ScaleIndex(row, group));
    }
  }
}

void StoredWeights::ReadFloats(size_t first, size_t end, float* out) const {
  const bool integers =
      matrix_.kind == StoredCodes::kUnsigned || matrix_.kind == StoredCodes::kSigned;
  const bool with_biases = !matrix_.biases.name.empty();
  const size_t groups = matrix_.groups();
  std::vector<uint8_t> codes(matrix_.inputs);
  std::vector<float> scales(groups);
  std::vector<float> offsets(groups);  // Zeros, or biases.
  for (size_t row = first; row < end; ++row) {
    ReadCodes(row, codes.data());
    if (matrix_.kind == StoredCodes::kTable) {  // Whose scales run on from row to row.
      for (size_t i = 0, at = row * matrix_.inputs; i < matrix_.inputs; ++i, ++at) {
        *out++ = RoundTo(rounding_, NestedScaleAt(at / matrix_.group) * values_[codes[i]]);
      }
      continue;
    }
    for (size_t group = 0; group < groups; ++group) {
      scales[group] = ScaleAt(row, group);
      offsets[group] = with_biases ? NumberAt(data_.biases, ScaleIndex(row, group))
                       : integers  ? static_cast<float>(ZeroAt(row, group))
                                   : 0;
    }
    for (size_t i = 0; i < matrix_.inputs; ++i) {
      const size_t group = GroupOf(i);
      const float code = integers ? static_cast<float>(codes[i]) : values_[codes[i]];
      *out++ = with_biases ? std::fma(scales[group], code, offsets[group])
                           : RoundTo(rounding_, scales[group] * (code - offsets[group]));
    }
  }
}

float StoredWeights::TensorScaleOf(size_t row) const {
  if (matrix_.tensor_scale.name.empty()) {
    return matrix_.tensor_factor;
  }
  const float of_tensor = NumberAt(data_.tensor_scale, row / matrix_.outputs);
  return matrix_.tensor_factor == 0 ? of_tensor : of_tensor * matrix_.tensor_factor;
}

void StoredWeights::ReadBlocks(size_t first, size_t end, uint8_t* out) const {
  const Dtype format = kept_.blocks;
  const size_t block = BlockElements(format);
  std::vector<uint8_t> codes(matrix_.inputs);
  const auto put = [&](const void* from, size_t size) {
    std::memcpy(out, from, size);
    out += size;
  };
  for (size_t row = first; row < end; ++row) {
    ReadCodes(row, codes.data());
    if (matrix_.kind == StoredCodes::kTable) {
      put(&rounding_, sizeof(rounding_));
    } else if (format != Dtype::kMXFP4) {
      const float of_row = TensorScaleOf(row);
      put(&of_row, sizeof(of_row));
    }
    for (size_t at = 0; at < matrix_.inputs; at += block) {
      if (matrix_.kind == StoredCodes::kTable) {
        const float scale = NestedScaleAt((row * matrix_.inputs + at) / matrix_.group);
        put(&scale, sizeof(scale));
      } else {  // Bytes as they are.
        put(data_.scales.data + ScaleIndex(row, at / matrix_.group), block / matrix_.group);
      }
      for (size_t part = at; part < at + block; part += kBlockPart) {
        PutCodes(codes.data() + part, out);
        out += kBlockPart / 2;
      }
    }
  }
}

}  // namespace strata
