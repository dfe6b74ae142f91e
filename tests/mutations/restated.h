// What config.json says of a model, read a second time: by formulas of transformers' modelling
// code, not by the product's parser.
#ifndef STRATA_TESTS_MUTATIONS_RESTATED_H_
#define STRATA_TESTS_MUTATIONS_RESTATED_H_

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tests/mutations/facts.h"

namespace strata::testing {

// YaRN's formulas: what sine and cosine of a context that is `factor` times as long are multiplied
// by, and the pairs between which frequencies are divided in part. `fast` and `slow` are turns.
double YarnScale(double factor, double by);
struct YarnTurns {
  double fast = 32;
  double slow = 1;
  double original = 0;
  double dim = 0;
  double theta = 0;
  bool whole = true;
};
struct YarnPairs {
  double low = 0;
  double high = 0;
};
YarnPairs YarnPairsOf(const YarnTurns& turns);

// The fields of a document's decoder: those of text_config, and what stands beside it. A model's
// own tie_word_embeddings is its decoder's.
nlohmann::ordered_json DecoderFields(const nlohmann::ordered_json& document);

// Fields of the documents' top level that are not alike.
std::vector<std::string> ChangedFields(const nlohmann::ordered_json& before,
                                       const nlohmann::ordered_json& after);

// What a spec must be that was `valid` for the configuration `before`, for `after`: fields that are
// not known to mean anything mean nothing.
Wanted Restated(const nlohmann::ordered_json& before, const nlohmann::ordered_json& after,
                const Facts& valid);

// The same of one field alone, of a configuration as it is.
Wanted RestatedField(const nlohmann::ordered_json& config, const std::string& field,
                     const Facts& valid);

// The fields that mean something: mutations should try these.
std::vector<std::string> MeaningfulFields();

}  // namespace strata::testing

#endif  // STRATA_TESTS_MUTATIONS_RESTATED_H_
