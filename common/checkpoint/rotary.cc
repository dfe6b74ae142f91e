// Rotary tables. RoPE: Su et al., "RoFormer", arXiv:2104.09864; the scaling of Llama 3.1 as in its
// public release; LongRoPE: Ding et al., arXiv:2402.13753; YaRN, and dynamic NTK in its appendix:
// Peng et al., arXiv:2309.00071.
#include <algorithm>
#include <numbers>

#include "common/checkpoint/checkpoint.h"
#include "common/numerics/math.h"

namespace strata {
namespace {

// Radians per position of each pair of dimensions.
std::vector<double> InverseFrequencies(const RopeSpec& rope, uint32_t variant) {
  std::vector<double> frequencies(rope.rotary_dim / 2);
  double theta = rope.theta;
  if (rope.scaling == RopeScaling::kDynamic && variant != 0) {
    // Of n = factor * original tokens: theta * (factor * n / original - (factor - 1))^(d / (d -
    // 2)).
    const double dim = rope.rotary_dim;
    theta *= PowF64(rope.factor * rope.factor - (rope.factor - 1), dim / (dim - 2));
  }
  for (size_t i = 0; i < frequencies.size(); ++i) {
    double f = PowF64(theta, -static_cast<double>(2 * i) / rope.rotary_dim);
    if (rope.scaling == RopeScaling::kLlama3) {
      const double wavelength = 2 * std::numbers::pi / f;
      const double low = rope.low_freq_factor;
      const double high = rope.high_freq_factor;
      if (wavelength > rope.original_context / low) {
        f /= rope.factor;
      } else if (wavelength >= rope.original_context / high) {
        const double s = (rope.original_context / wavelength - low) / (high - low);
        f = (1 - s) * f / rope.factor + s * f;
      }
    } else if (rope.scaling == RopeScaling::kLinear) {
      f /= rope.factor;
    } else if (rope.scaling == RopeScaling::kYarn) {
      const double ramp =
          (static_cast<double>(i) - rope.yarn_low) / (rope.yarn_high - rope.yarn_low);
      const double divided = std::clamp(ramp, 0.0, 1.0);
      f = divided * f / rope.factor + (1 - divided) * f;
    } else if (rope.scaling == RopeScaling::kLongRope) {
      f /= (variant == 0 ? rope.short_factors : rope.long_factors)[i];
    }
    frequencies[i] = rope.divisors.empty() ? f : f / rope.divisors[i];
  }
  return frequencies;
}

}  // namespace

std::vector<float> MakeRotaryTables(const RopeSpec& rope, uint32_t context, uint32_t variant) {
  const std::vector<double> frequencies = InverseFrequencies(rope, variant);
  const size_t half = frequencies.size();
  const size_t table = size_t{context} * half;
  std::vector<float> tables(2 * table);
  for (size_t position = 0; position < context; ++position) {
    for (size_t i = 0; i < half; ++i) {
      double sin, cos;
      SinCosF64(static_cast<double>(position) * frequencies[i], &sin, &cos);
      tables[position * half + i] = static_cast<float>(cos * rope.magnitude);
      tables[table + position * half + i] = static_cast<float>(sin * rope.magnitude);
    }
  }
  return tables;
}

std::vector<float> MakeRotaryTables(const ModelSpec& spec, uint32_t context) {
  std::vector<float> all;
  for (const RopeSpec& rope : RopesOf(spec)) {
    for (uint32_t variant = 0; variant < rope.variants(); ++variant) {
      const std::vector<float> tables = MakeRotaryTables(rope, context, variant);
      all.insert(all.end(), tables.begin(), tables.end());
    }
  }
  return all;
}

}  // namespace strata
