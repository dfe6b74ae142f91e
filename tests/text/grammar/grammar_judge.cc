// What the grammar of a schema takes, for scripts that ask another reader of schemas:
// tests/text/grammar/compare_with_jsonschema.py, tests/integration/test_constraints.py. A line of
// the input is {"schema": text, "texts": [text], "draw": count}, one of the output {"reason": text,
// "message": text}, or {"admitted": [bool], "begun": [bool], "drawn": [text]}: whether each text
// follows the grammar, and whether it is the beginning of one that does.
#include <iostream>
#include <nlohmann/json.hpp>
#include <string>

#include "common/status.h"
#include "tests/text/grammar/sampler.h"
#include "text/grammar/constraint.h"
#include "text/grammar/recognizer.h"

int main() {
  using namespace strata;  // NOLINT(google-build-using-namespace)
  for (std::string line; std::getline(std::cin, line);) {
    const nlohmann::json asked = nlohmann::json::parse(line);
    const absl::StatusOr<Grammar> grammar = GrammarOfSchema(std::string(asked["schema"]), {});
    nlohmann::json answer;
    if (!grammar.ok()) {
      answer = {{"reason", ReasonOf(grammar.status())}, {"message", grammar.status().message()}};
    } else {
      const auto recognizer = Recognizer::Make(*grammar, 1'000'000);
      answer = {{"admitted", nlohmann::json::array()},
                {"begun", nlohmann::json::array()},
                {"drawn", nlohmann::json::array()}};
      for (const auto& text : asked["texts"]) {
        const std::string checked = text;
        const auto verdict =
            recognizer.ok() ? recognizer->Check(checked) : Recognizer::Verdict{false, 0};
        answer["admitted"].push_back(verdict.complete);
        answer["begun"].push_back(recognizer.ok() && verdict.prefix == checked.size());
      }
      testing::Sampler sampler(*grammar, 1);
      for (int i = 0; i < asked["draw"]; ++i) {
        answer["drawn"].push_back(sampler.Draw());
      }
    }
    std::cout << answer.dump() << std::endl;
  }
  return 0;
}
