#include "coordinator/http/sampling_fields.h"

#include <charconv>
#include <cmath>
#include <string>

#include "common/limits.h"

namespace strata {
namespace {

constexpr double kExactInDouble = 9007199254740992.0;  // 2^53.

void ReadLogitBias(Fields* fields, v1::SamplingParams* sampling) {
  const Json* biases = fields->Object("logit_bias");
  if (biases == nullptr) {
    return;
  }
  if (biases->size() > kMaxLogitBias) {
    fields->Fail(BadField(fields->Name("logit_bias"),
                          "of at most " + std::to_string(kMaxLogitBias) + " entries"));
    return;
  }
  for (const auto& [key, bias] : biases->items()) {
    uint32_t id = 0;
    const auto read = std::from_chars(key.data(), key.data() + key.size(), id);
    if (read.ec != std::errc() || read.ptr != key.data() + key.size() || !bias.is_number()) {
      fields->Fail(BadField(fields->Name("logit_bias"), "an object of token ids to numbers"));
      return;
    }
    (*sampling->mutable_logit_bias())[id] = NearestFloat(bias.get<double>());
  }
}

// Any that 64 bits hold, with a sign or without: answers show what it was as one without.
void ReadSeed(Fields* fields, v1::SamplingParams* sampling) {
  const Json* seed = fields->Find("seed");
  if (seed == nullptr) {
    return;
  }
  if (seed->is_number_unsigned()) {
    sampling->set_seed(seed->get<uint64_t>());
  } else if (seed->is_number_integer()) {
    sampling->set_seed(static_cast<uint64_t>(seed->get<int64_t>()));
  } else if (seed->is_number_float() && std::fabs(seed->get<double>()) <= kExactInDouble &&
             std::floor(seed->get<double>()) == seed->get<double>()) {
    sampling->set_seed(static_cast<uint64_t>(static_cast<int64_t>(seed->get<double>())));
  } else {
    fields->Fail(BadField(fields->Name("seed"),
                          "a whole number in [-9223372036854775808, "
                          "18446744073709551615]"));
  }
}

}  // namespace

void ReadSampling(Fields* fields, v1::GenerateRequest* request) {
  v1::SamplingParams* sampling = request->mutable_sampling();
  if (const auto v = fields->Float("temperature")) sampling->set_temperature(*v);
  if (const auto v = fields->Float("top_p")) sampling->set_top_p(*v);
  if (const auto v = fields->Float("min_p")) sampling->set_min_p(*v);
  if (const auto v = fields->Float("typical_p")) sampling->set_typical_p(*v);
  if (const auto v = fields->Float("repetition_penalty")) sampling->set_repetition_penalty(*v);
  if (const auto v = fields->Float("frequency_penalty")) sampling->set_frequency_penalty(*v);
  if (const auto v = fields->Float("presence_penalty")) sampling->set_presence_penalty(*v);
  if (const auto v = fields->Int("top_k", -1, kMaxVocabSize)) {
    sampling->set_top_k(*v < 0 ? 0 : static_cast<uint32_t>(*v));
  }
  ReadSeed(fields, sampling);
  ReadLogitBias(fields, sampling);
  for (std::string& stop : fields->Texts("stop")) {
    request->add_stop(std::move(stop));
  }
  if (request->stop_size() > static_cast<int>(kMaxStopStrings)) {
    fields->Fail(
        BadField(fields->Name("stop"), "at most " + std::to_string(kMaxStopStrings) + " strings"));
  }
  for (const std::string& stop : request->stop()) {
    if (stop.empty() || stop.size() > kMaxStopBytes) {
      fields->Fail(BadField(fields->Name("stop"),
                            "strings of 1 to " + std::to_string(kMaxStopBytes) + " bytes"));
    }
  }
  // vLLM's name and LoRAX's.
  const bool ignores = fields->BoolOr("ignore_eos", false);
  request->set_ignore_eos(fields->BoolOr("ignore_eos_token", false) || ignores);
  request->set_min_tokens(
      static_cast<uint32_t>(fields->Int("min_tokens", 0, kMaxContextTokens).value_or(0)));
  request->set_speculate(fields->Text("speculate").value_or(""));
}

bool HasNegativeSeed(const Fields& fields) {
  const Json* seed = fields.Find("seed");
  return seed != nullptr && seed->is_number() && !seed->is_number_unsigned() &&
         seed->get<double>() < 0;
}

OrderedJson SeedJson(uint64_t seed, bool negative) {
  return negative ? OrderedJson(static_cast<int64_t>(seed)) : OrderedJson(seed);
}

bool ReadTokenIds(const Json& json, const std::string& name, Fields* fields, v1::TokenIds* ids) {
  for (const Json& id : json) {
    if (!id.is_number_integer() || id < 0 || id >= kMaxVocabSize) {
      fields->Fail(BadField(name, "an array of token ids"));
      return false;
    }
    ids->add_ids(id.get<uint32_t>());
  }
  return true;
}

}  // namespace strata
