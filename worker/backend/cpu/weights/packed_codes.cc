#include "worker/backend/cpu/weights/packed_codes.h"

#include <cmath>
#include <cstring>
#include <limits>

#include "common/check.h"
#include "common/model/block_formats.h"
#include "common/model/half.h"
#include "common/model/narrow_floats.h"

namespace strata::cpu {
namespace {

constexpr size_t kBlockBytes = kQuantBlock * kLanes / 2;
constexpr size_t kGroupBlocks = kCodeGroup / kQuantBlock;

float FloatAt(const uint8_t* from) {
  float value;
  std::memcpy(&value, from, sizeof(value));
  return value;
}

// Where a panel has what is of one output and one block.
struct Place {
  size_t head;   // Of its group's scales,
  size_t lines;  // and of its lines.
};
Place PlaceOf(CodeScales scales, size_t block) {
  const size_t group = block / kGroupBlocks;
  const size_t head =
      CodeRowBytes(scales) + group * (CodeHeadBytes(scales) + kGroupBlocks * kBlockBytes);
  return {head, head + CodeHeadBytes(scales) + block % kGroupBlocks * kBlockBytes};
}

// Scales of block `block` of the row, where the group of its panel begins at `head`.
void PutScales(CodeScales scales, Dtype dtype, const uint8_t* row, size_t block, size_t lane,
               uint8_t* head) {
  const size_t i = block % kGroupBlocks;
  const uint8_t* const from = CodeScalesAt(dtype, row, block);
  switch (scales) {
    case CodeScales::kExponent:
      head[i * kLanes + lane] = from[0];
      return;
    case CodeScales::kFloat8Halves:
      head[2 * i * kLanes + lane] = from[0];
      head[(2 * i + 1) * kLanes + lane] = from[1];
      return;
    case CodeScales::kHalf:
      std::memcpy(head + (i * kLanes + lane) * sizeof(uint16_t), from, sizeof(uint16_t));
      return;
    case CodeScales::kFloat:
      std::memcpy(head + (i / 2 * kLanes + lane) * sizeof(float), from, sizeof(float));
      return;
    case CodeScales::kSuper: {
      const SuperCodeScale scale = SuperCodeScaleAt(row, block);
      std::memcpy(head + lane * sizeof(float), &scale.scale, sizeof(float));
      head[kLanes * sizeof(float) + i * kLanes + lane] = static_cast<uint8_t>(scale.factor);
      return;
    }
  }
}

// A row's number, which is none where one of its scales is none: kernels take all those for
// numbers.
float RowNumber(const PanelView& view, Dtype dtype, const uint8_t* row) {
  float factor = FloatAt(row);
  for (size_t block = 0; block < view.inputs / kQuantBlock; ++block) {
    const CodePart part = DecodeCodes(dtype, row, block);
    if (std::isnan(part.scales[0]) || std::isnan(part.scales[1])) {
      factor = std::numeric_limits<float>::quiet_NaN();
    }
  }
  return factor;
}

// The scales of a block of one output, and how its weights are rounded.
CodePart TakeScales(const CodeBook& book, const uint8_t* panel, size_t block, size_t lane) {
  const uint8_t* const head = panel + PlaceOf(book.scales, block).head;
  const uint8_t* const of_row = panel + lane * sizeof(float);
  const size_t i = block % kGroupBlocks;
  CodePart part;
  part.rounding = book.rounding;
  switch (book.scales) {
    case CodeScales::kExponent:
      part.scales[0] = ExponentToF32(head[i * kLanes + lane]);
      break;
    case CodeScales::kFloat8Halves:
      part.row = FloatAt(of_row);
      part.scales[0] = Float8ToF32(head[2 * i * kLanes + lane]);
      part.scales[1] = Float8ToF32(head[(2 * i + 1) * kLanes + lane]);
      return part;
    case CodeScales::kHalf:
      part.scales[0] = HalfAt(head + (i * kLanes + lane) * sizeof(uint16_t));
      break;
    case CodeScales::kFloat:
      part.rounding = RowRounding(of_row);
      part.scales[0] = FloatAt(head + (i / 2 * kLanes + lane) * sizeof(float));
      break;
    case CodeScales::kSuper:
      part.scales[0] = FloatAt(head + lane * sizeof(float)) *
                       static_cast<float>(static_cast<int8_t>(head[(4 + i) * kLanes + lane]));
      break;
  }
  part.scales[1] = part.scales[0];
  return part;
}

}  // namespace

WeightFormat CodeFormatOf(Dtype dtype) {
  switch (dtype) {
    case Dtype::kNVFP4:
      return WeightFormat::kNvfp4;
    case Dtype::kNVFP4BF16:
      return WeightFormat::kNvfp4Bf16;
    case Dtype::kIQ4_NL:
      return WeightFormat::kIq4Nl;
    case Dtype::kIQ4_XS:
      return WeightFormat::kIq4Xs;
    case Dtype::kNF4:
      return WeightFormat::kNf4;
    case Dtype::kFP4:
      return WeightFormat::kFp4;
    default:
      STRATA_CHECK(dtype == Dtype::kMXFP4);
      return WeightFormat::kMxfp4;
  }
}

void PackCodes(const PanelView& view, Dtype dtype, const uint8_t* row, size_t output,
               uint8_t* panels) {
  const CodeScales scales = BookOf(view.format).scales;
  const size_t lane = output % kLanes;
  uint8_t* const panel = panels + output / kLanes * view.panel_bytes;
  if (scales == CodeScales::kFloat8Halves) {
    const float number = RowNumber(view, dtype, row);
    std::memcpy(panel + lane * sizeof(number), &number, sizeof(number));
  } else if (scales == CodeScales::kFloat) {
    const CodeRounding rounding = RowRounding(row);
    std::memcpy(panel + lane * sizeof(rounding), &rounding, sizeof(rounding));
  }
  for (size_t block = 0; block < view.inputs / kQuantBlock; ++block) {
    const Place place = PlaceOf(scales, block);
    PutScales(scales, dtype, row, block, lane, panel + place.head);
    const CodePart part = DecodeCodes(dtype, row, block);
    for (size_t line = 0; line < 4; ++line) {
      for (size_t j = 0; j < 4; ++j) {
        panel[place.lines + line * 64 + lane * 4 + j] =
            static_cast<uint8_t>(part.u[8 * line + j] | part.u[8 * line + 4 + j] << 4);
      }
    }
  }
}

void ReadCodes(const PanelView& view, size_t output, float* out) {
  const CodeBook& book = BookOf(view.format);
  const size_t lane = output % kLanes;
  const uint8_t* const panel = view.data + output / kLanes * view.panel_bytes;
  for (size_t block = 0; block < view.inputs / kQuantBlock; ++block) {
    CodePart part = TakeScales(book, panel, block, lane);
    const uint8_t* const lines = panel + PlaceOf(book.scales, block).lines + lane * 4;
    for (size_t k = 0; k < kQuantBlock; ++k) {
      part.u[k] = static_cast<uint8_t>(lines[k / 8 * 64 + k % 4] >> (k / 4 % 2 * 4) & 15);
      out[block * kQuantBlock + k] = WeightOf(book, part, k);
    }
  }
}

}  // namespace strata::cpu
