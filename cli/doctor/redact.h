// Takes out of a text what nobody else may read.
#ifndef STRATA_CLI_DOCTOR_REDACT_H_
#define STRATA_CLI_DOCTOR_REDACT_H_

#include <string>
#include <string_view>
#include <vector>

namespace strata::cli {

// `text` with "(removed)" in place of: private keys (PEM), tokens to join by, API keys, what stands
// behind "Bearer" and "Basic", Hugging Face's tokens, values of JSON members and of name=value
// whose name says that they are secret or what somebody asked a model (prompt, messages, text,
// content, input), and each of `secrets`, as it is.
std::string Redact(std::string_view text, const std::vector<std::string>& secrets);

}  // namespace strata::cli

#endif  // STRATA_CLI_DOCTOR_REDACT_H_
