#include "common/checkpoint/gguf_rope.h"

#include <charconv>
#include <utility>

#include "absl/strings/charconv.h"
#include "absl/strings/str_cat.h"
#include "common/checkpoint/json_reader.h"
#include "common/checkpoint/unsupported_model.h"
#include "common/status.h"

namespace strata {
namespace {

using nlohmann::json;

constexpr char kDivisors[] = "rope_freqs.weight";
constexpr char kWithin[] = "rope_factors_short.weight";
constexpr char kBeyond[] = "rope_factors_long.weight";
constexpr char kScaling[] = "rope_scaling";  // Of config.json.
// By it queries grow with positions.
constexpr char kGrowth[] = "attention.temperature_scale";
constexpr char kGrowthLength[] = "attention.temperature_length";
constexpr double kMost = 1e30;

// The shortest decimal number that a float32 is: what it was before it was one.
double AsWritten(double number) {
  char text[32];
  const auto end = std::to_chars(text, text + sizeof(text), static_cast<float>(number));
  double out = number;
  absl::from_chars(text, end.ptr, out);
  return out;
}

Error InvalidConfig(const std::string& what) {
  return Error(absl::StatusCode::kInvalidArgument, "INVALID_GGUF", what);
}

class RopeWriter {
 public:
  RopeWriter(const GgufArchitecture& architecture, const GgufHeader& header,
             const GgufFactors& factors, uint64_t rotary_dim, uint64_t context, json* config)
      : architecture_(architecture),
        family_(*architecture.family),
        reader_(&header),
        factors_(factors),
        rotary_dim_(rotary_dim),
        context_(context),
        config_(config) {}

  absl::Status Write() {
    RETURN_IF_ERROR(WriteScaling());
    RETURN_IF_ERROR(WriteGrowth());
    WriteKinds();
    return reader_.status();
  }

 private:
  std::string Key(const char* name) const { return architecture_.Key(name); }
  bool Has(const char* name) const { return reader_.Find(Key(name)) != nullptr; }
  double Number(const char* name, double fallback) {
    return reader_.Number(Key(name), 0, kMost, fallback);
  }
  Error UnsupportedKey(const char* name) const {
    return UnsupportedModel("key " + Quoted(Key(name)));
  }
  uint64_t OriginalContext() {
    return reader_.Uint(Key("rope.scaling.original_context_length"), 1, UINT32_MAX, context_);
  }

  absl::Status WriteScaling() {
    // The old name of a linear scaling's factor is still read by llama.cpp, whose default is
    // linear.
    const std::string type = reader_.String(Key("rope.scaling.type"), "linear");
    const double factor = Number("rope.scaling.factor", Number("rope.scale_linear", 1));
    const double magnitude = Number("rope.scaling.attn_factor", 1);
    RETURN_IF_ERROR(reader_.status());
    RETURN_IF_ERROR(CheckFactors());
    const bool scales = type != "none" && factor != 0 && factor != 1;
    const bool long_rope = !factors_.within.empty() || !factors_.beyond.empty();
    if (scales && (long_rope || !factors_.all.empty())) {
      return UnsupportedModel(absl::StrCat("key ", Quoted(Key("rope.scaling.factor")),
                                           " beside tensor ",
                                           Quoted(long_rope ? kBeyond : kDivisors)));
    }
    if (long_rope) {
      return WriteLongRope(magnitude);
    }
    if (magnitude != 1) {
      return UnsupportedKey("rope.scaling.attn_factor");
    }
    if (!factors_.all.empty()) {
      (*config_)[kScaling] = {{"rope_type", "divisors"}, {"divisors", factors_.all}};
    } else if (scales && type == "linear") {
      (*config_)[kScaling] = {{"rope_type", "linear"}, {"factor", factor}};
    } else if (scales && type == "yarn" && family_.yarn) {
      return WriteYarn(factor);
    } else if (scales) {
      return UnsupportedModel(absl::StrCat("key ", Quoted(Key("rope.scaling.type")), " ",
                                           Quoted(type), " with key ",
                                           Quoted(Key("rope.scaling.factor")), " ", factor));
    } else if (family_.default_rope != nullptr) {
      (*config_)[kScaling] = {{"rope_type", "default"}};
    }
    return absl::OkStatus();
  }

  // One for each pair of what rotates.
  absl::Status CheckFactors() const {
    const std::pair<const char*, const std::vector<float>*> kLists[] = {
        {kDivisors, &factors_.all}, {kWithin, &factors_.within}, {kBeyond, &factors_.beyond}};
    for (const auto& [tensor, list] : kLists) {
      if (!list->empty() && list->size() != rotary_dim_ / 2) {
        return InvalidConfig(
            absl::StrCat("tensor ", Quoted(tensor), " has ", list->size(), " values for the ",
                         rotary_dim_, " dimensions that rotate, by key ",
                         Quoted(Key("rope.dimension_count")), " or a head's size"));
      }
    }
    return absl::OkStatus();
  }

  absl::Status WriteLongRope(double magnitude) {
    if (!family_.long_rope || !factors_.all.empty()) {
      return UnsupportedModel(absl::StrCat("tensor ", Quoted(kBeyond), " or ", Quoted(kWithin),
                                           " of architecture ", Quoted(architecture_.name)));
    }
    if (factors_.within.empty() || factors_.beyond.empty()) {
      return InvalidConfig(
          absl::StrCat("there is tensor ", Quoted(factors_.within.empty() ? kBeyond : kWithin),
                       " without ", Quoted(factors_.within.empty() ? kWithin : kBeyond)));
    }
    (*config_)["original_max_position_embeddings"] = OriginalContext();
    (*config_)[kScaling] = {{"rope_type", "longrope"},
                            {"short_factor", factors_.within},
                            {"long_factor", factors_.beyond},
                            {"attention_factor", magnitude}};
    return reader_.status();
  }

  absl::Status WriteYarn(double factor) {
    constexpr char kAttention[] = "rope.scaling.yarn_attn_factor";
    json scaling = {{"rope_type", "yarn"},
                    {"factor", factor},
                    {"original_max_position_embeddings", OriginalContext()},
                    {"beta_fast", Number("rope.scaling.yarn_beta_fast", 32)},
                    {"beta_slow", Number("rope.scaling.yarn_beta_slow", 1)},
                    {"truncate", architecture_.yarn_truncates}};
    if (Has(kAttention)) {
      scaling["attention_factor"] = Number(kAttention, 1);
    }
    // What it was divided by for the file, and mscale, which no key says, is taken for the same.
    if (const double log = Number("rope.scaling.yarn_log_multiplier", 0); log != 0) {
      scaling["mscale_all_dim"] = AsWritten(log) / architecture_.yarn_log_unit;
      scaling["mscale"] = family_.latent ? scaling["mscale_all_dim"] : json(1.0);
    }
    if (Number("rope.scaling.yarn_ext_factor", 1) != 1) {
      return UnsupportedKey("rope.scaling.yarn_ext_factor");
    }
    (*config_)[kScaling] = std::move(scaling);
    return reader_.status();
  }

  // By what queries grow every so many positions: by YaRN's original context. Files of Mistral
  // Small 3.1 and 3.2, of the same architecture, do not say it: it is 0.
  absl::Status WriteGrowth() {
    if (!family_.query_growth) {
      return absl::OkStatus();  // The key is refused where it is not read.
    }
    const double growth = Number(kGrowth, 0);
    json scaling = config_->value(kScaling, json{{"rope_type", "default"}});
    if (growth != 0 && scaling["rope_type"] != "yarn") {
      return UnsupportedModel(absl::StrCat("key ", Quoted(Key(kGrowth)), " without YaRN by keys ",
                                           Quoted(Key("rope.scaling.type")), " and ",
                                           Quoted(Key("rope.scaling.factor"))));
    }
    const uint64_t every = OriginalContext();
    if (growth != 0 && reader_.Uint(Key(kGrowthLength), 0, UINT32_MAX, every) != every) {
      return UnsupportedKey(kGrowthLength);
    }
    scaling["llama_4_scaling_beta"] = AsWritten(growth);
    (*config_)[kScaling] = std::move(scaling);
    return reader_.status();
  }

  // An object of each, where a family scales the layers without a window alone.
  void WriteKinds() {
    if (!family_.scales_full_alone) {
      return;
    }
    const json plain = {{"rope_type", "default"}, {"rope_theta", (*config_)["rope_theta"]}};
    json full = config_->value(kScaling, plain);
    full["rope_theta"] = (*config_)["rope_theta"];
    (*config_)["rope_parameters"] = {{"full_attention", std::move(full)},
                                     {"sliding_attention", plain}};
    config_->erase(kScaling);
  }

  const GgufArchitecture& architecture_;
  const Family& family_;
  GgufReader reader_;
  const GgufFactors& factors_;
  const uint64_t rotary_dim_;
  const uint64_t context_;
  json* const config_;
};

}  // namespace

std::vector<float>* FactorsOf(std::string_view tensor, GgufFactors* factors) {
  return tensor == kDivisors ? &factors->all
         : tensor == kWithin ? &factors->within
         : tensor == kBeyond ? &factors->beyond
                             : nullptr;
}

absl::Status WriteGgufRope(const GgufArchitecture& architecture, const GgufHeader& header,
                           const GgufFactors& factors, uint64_t rotary_dim, uint64_t context,
                           json* config) {
  return RopeWriter(architecture, header, factors, rotary_dim, context, config).Write();
}

}  // namespace strata
