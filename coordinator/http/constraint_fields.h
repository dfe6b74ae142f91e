// What an answer is held to, in the spellings of clients.
#ifndef STRATA_COORDINATOR_HTTP_CONSTRAINT_FIELDS_H_
#define STRATA_COORDINATOR_HTTP_CONSTRAINT_FIELDS_H_

#include <string>
#include <vector>

#include "coordinator/http/json_body.h"
#include "coordinator/http/ordered_body.h"
#include "strata/v1/inference.pb.h"

namespace strata {

// Members of a body that the readers below want as they are written.
const std::vector<std::string>& ConstraintMembers();

// `response_format`, vLLM's `structured_outputs` and `guided_*`, SGLang's `regex`, `ebnf` and
// `json_schema`, llama.cpp's `grammar` and `json_schema`. At most one constraint: of two, BAD_FIELD
// names both. An empty text or array is none. `body` is what `fields` were read from.
void ReadConstraint(Fields* fields, OrderedBody* body, v1::GenerateRequest* request);
// The parameters of LoRAX and TGI: `response_format`, `schema`, `grammar`.
void ReadLoraxConstraint(Fields* parameters, OrderedBody* body, v1::GenerateRequest* request);

}  // namespace strata

#endif  // STRATA_COORDINATOR_HTTP_CONSTRAINT_FIELDS_H_
