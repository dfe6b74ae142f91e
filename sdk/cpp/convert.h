// The library's plain types <-> the messages on the wire.
#ifndef STRATA_SDK_CPP_CONVERT_H_
#define STRATA_SDK_CPP_CONVERT_H_

#include <string>
#include <vector>

#include "sdk/cpp/strata.h"
#include "strata/v1/inference.pb.h"

namespace strata::sdk {

v1::GenerateRequest ToWire(const GenerateRequest& request);
v1::ChatInput ToWire(const std::vector<ChatMessage>& messages);
TokenLogprob FromWire(const v1::TokenLogprob& wire);
// What the first and the last message say, into `result`.
void FromWire(const v1::Started& started, Generation* result);
void FromWire(const v1::Finish& finish, Generation* result);
// A fresh request id, "sdk-" and 96 random bits.
std::string MakeRequestId();

}  // namespace strata::sdk

#endif  // STRATA_SDK_CPP_CONVERT_H_
