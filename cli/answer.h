// One answer, streamed: what `generate` and `chat` share.
#ifndef STRATA_CLI_ANSWER_H_
#define STRATA_CLI_ANSWER_H_

#include <functional>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "cli/command.h"
#include "sdk/cpp/strata.h"

namespace strata::cli {

// Streams the answer to `request`: its text to stdout as it comes, unless the run prints JSON.
// `on_piece` (may be empty) sees each piece; its error ends the request. Ctrl-C cancels the
// request on the cluster and gives CANCELLED.
absl::StatusOr<sdk::Generation> StreamAnswer(
    const Context& context, sdk::Client* client, const sdk::GenerateRequest& request,
    sdk::CallOptions call, const std::function<absl::Status(const sdk::Piece&)>& on_piece);

// "stop, 12 prompt + 34 generated tokens, 45.1 tokens/s, seed 7", for people.
std::string AnswerSummary(const sdk::Generation& generation);

// The error of an answer that was cancelled by somebody else; ok for others.
absl::Status CheckNotCancelled(const sdk::Generation& generation);

}  // namespace strata::cli

#endif  // STRATA_CLI_ANSWER_H_
