// What is known of a model, for people: the same text from `strata` and from the coordinator's
// offline commands.
#ifndef STRATA_COMMON_REPORT_MODEL_REPORT_H_
#define STRATA_COMMON_REPORT_MODEL_REPORT_H_

#include <string>

#include "strata/v1/admin.pb.h"

namespace strata {

// Lines "  WHAT         text": shape, files, weights and layers in memory, KV, tokenizer, chat
// template, notes, and what it cannot do. Less of it where the model has no facts.
std::string ModelReport(const v1::Model& model);

}  // namespace strata

#endif  // STRATA_COMMON_REPORT_MODEL_REPORT_H_
