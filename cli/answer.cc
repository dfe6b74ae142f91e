#include "cli/answer.h"

#include <ostream>
#include <utility>

#include "cli/output.h"
#include "common/printable.h"
#include "common/status.h"

namespace strata::cli {
namespace {

// A model may write what a terminal obeys. Line ends and tabs are text.
std::string ForTerminal(const std::string& text) {
  std::string out;
  for (size_t i = 0; i < text.size(); ++i) {
    const auto c = static_cast<unsigned char>(text[i]);
    const bool high = c == 0xC2 && i + 1 < text.size() &&
                      static_cast<unsigned char>(text[i + 1]) < 0xA0;  // U+0080 to U+009F.
    if (high || (c < 0x20 && c != '\n' && c != '\t') || c == 0x7F) {
      out += Printable(text.substr(i, high ? 2 : 1));
      i += high ? 1 : 0;
    } else {
      out += text[i];
    }
  }
  return out;
}

// Writes text piece by piece; a model without a tokenizer has ids only.
// `wrote`: something of the answer before it.
absl::Status Print(const Context& context, const sdk::Piece& piece, bool wrote) {
  if (context.json()) {
    return absl::OkStatus();
  }
  const bool terminal = context.environment().out_is_terminal;
  const auto shown = [](const std::string& text, bool on_terminal) {
    return on_terminal ? ForTerminal(text) : text;
  };
  // Thoughts are no part of the answer.
  context.err() << shown(piece.thought, context.environment().err_is_terminal) << std::flush;
  context.out() << shown(piece.text, terminal);
  for (const sdk::ToolCallPiece& call : piece.tool_calls) {
    if (!call.id.empty()) {
      context.out() << (wrote || !piece.text.empty() || call.index > 0 ? "\n" : "")
                    << shown(call.name, terminal) << " ";
    }
    context.out() << shown(call.arguments, terminal);
  }
  context.out() << std::flush;
  if (context.out().fail()) {
    return Error(absl::StatusCode::kDataLoss, "CANNOT_WRITE", "stdout cannot be written to");
  }
  return absl::OkStatus();
}

void PrintIds(const sdk::Generation& generation, std::ostream& out) {
  const char* separator = "";
  for (const uint32_t id : generation.token_ids) {
    out << separator << id;
    separator = ",";
  }
}

}  // namespace

absl::StatusOr<sdk::Generation> StreamAnswer(
    const Context& context, sdk::Client* client, const sdk::GenerateRequest& request,
    sdk::CallOptions call, const std::function<absl::Status(const sdk::Piece&)>& on_piece) {
  const sdk::Cancellation cancellation;
  call.cancellation = cancellation;
  const OnInterrupt on_interrupt(context, [cancellation] { cancellation.Cancel(); });
  ASSIGN_OR_RETURN(sdk::GenerateStream stream, client->Stream(request, call));
  int replays = 0;
  bool wrote_text = false;
  while (true) {
    absl::StatusOr<std::optional<sdk::Piece>> piece = stream.Next();
    if (!piece.ok()) {
      if (wrote_text) {
        context.out() << std::endl;
      }
      if (!cancellation.cancelled()) {
        return piece.status();
      }
      return Error(absl::StatusCode::kCancelled, "CANCELLED",
                   "cancelled after " + Counted(stream.result().token_ids.size(), "token"));
    }
    if (stream.result().replays > replays) {
      replays = stream.result().replays;
      context.err() << "strata: the connection was lost; the answer went on from a replay\n";
    }
    if (!piece->has_value()) {
      break;
    }
    if (!context.json() && !wrote_text && !stream.result().thought.empty() &&
        (!(*piece)->text.empty() || !(*piece)->tool_calls.empty())) {
      context.err() << "\n" << std::flush;
    }
    RETURN_IF_ERROR(Print(context, **piece, wrote_text));
    wrote_text = wrote_text ||
                 (!context.json() && (!(*piece)->text.empty() || !(*piece)->tool_calls.empty()));
    if (on_piece) {
      RETURN_IF_ERROR(on_piece(**piece));
    }
  }
  if (!context.json()) {
    if (stream.result().text.empty() && stream.result().thought.empty() &&
        stream.result().tool_calls.empty()) {
      PrintIds(stream.result(), context.out());
    }
    context.out() << std::endl;
  }
  return stream.result();
}

std::string AnswerSummary(const sdk::Generation& generation) {
  std::string line = generation.finish_reason + ", " + std::to_string(generation.prompt_tokens) +
                     " prompt + " + Counted(generation.token_ids.size(), "generated token");
  const double decode_ms = generation.total_ms - generation.ttft_ms;
  if (generation.token_ids.size() > 1 && decode_ms > 0) {
    line += ", " + Rounded(static_cast<double>(generation.token_ids.size() - 1) * 1e3 / decode_ms) +
            " tokens/s";
  }
  line += ", first token after " + Rounded(generation.ttft_ms) + " ms, seed " +
          std::to_string(generation.seed);
  for (const sdk::NumericsChange& change : generation.numerics_changes) {
    line += ", computed as " + Printable(change.numerics_class) + " from token " +
            std::to_string(change.token) + " on";
  }
  return line;
}

absl::Status CheckNotCancelled(const sdk::Generation& generation) {
  if (generation.finish_reason != "cancelled") {
    return absl::OkStatus();
  }
  return Error(absl::StatusCode::kCancelled, "CANCELLED",
               "request " + generation.request_id + " was cancelled after " +
                   Counted(generation.token_ids.size(), "token"))
      .RequestId(generation.request_id);
}

}  // namespace strata::cli
