#include "tests/sim/exact_model.h"

#include "common/check.h"
#include "tests/sim/scenario.h"
#include "tests/worker/runner/hash_shard.h"
#include "worker/sampler/sampler.h"

namespace strata::sim {
namespace {

// Row after row, with what every layer keeps of the rows before.
class ExactModel {
 public:
  explicit ExactModel(const ModelSpec& model) : kept_(model.layers.size()) {}

  testing::HashRow Append(uint32_t id) {
    testing::HashRow row = testing::HashEmbed(id);
    for (uint32_t layer = 0; layer < kept_.size(); ++layer) {
      std::vector<testing::HashRow>& kept = kept_[layer];
      kept.push_back(testing::HashKv(row, layer, static_cast<uint32_t>(kept.size())));
      testing::HashRow seen;
      for (const testing::HashRow& key : kept) {
        testing::HashSee(key, &seen);
      }
      row = testing::HashMlp(testing::HashAttend(row, seen, layer), layer);
    }
    return row;
  }

 private:
  std::vector<std::vector<testing::HashRow>> kept_;  // By layer, then position.
};

}  // namespace

ModelSpec ExactModelSpec(uint32_t layers) { return testing::HashModel(layers, {{}}, kVocab); }

std::vector<uint32_t> ExactAnswer(const ModelSpec& model, std::span<const uint32_t> prompt,
                                  const v1::SequenceParams& params, size_t count,
                                  const std::optional<ConstraintScript>& held) {
  ExactModel exact(model);
  testing::HashRow row;
  for (const uint32_t id : prompt) {
    row = exact.Append(id);
  }
  std::vector<uint32_t> ids(prompt.begin(), prompt.end());
  std::vector<uint32_t> answer;
  std::vector<float> logits(model.vocab);
  Sampler sampler(model.vocab);
  while (answer.size() < count) {
    for (uint32_t id = 0; id < model.vocab; ++id) {
      logits[id] = testing::HashLogit(row, id);
    }
    SampleRequest request = SampleRequestOf(params, ids);
    request.prompt_length = static_cast<uint32_t>(prompt.size());
    const auto next = held.has_value() ? ScriptedNext(*held, answer) : nullptr;
    if (next != nullptr) request.mask = next->bits;
    const auto token = sampler.Sample(request, logits);
    STRATA_CHECK(token.ok());
    answer.push_back(*token);
    ids.push_back(*token);
    row = exact.Append(*token);
  }
  return answer;
}

}  // namespace strata::sim
