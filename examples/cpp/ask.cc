// Asks a model one question and prints the answer as it comes.
//
//   strata-example-ask [HOST:PORT] MODEL QUESTION
#include <cstdlib>
#include <iostream>
#include <string>
#include <vector>

#include "sdk/cpp/strata.h"

namespace {

int Fail(const absl::Status& status) {
  // One line: what failed, which limit was met, what to do.
  std::cerr << strata::sdk::Describe(status) << "\n";
  return EXIT_FAILURE;
}

}  // namespace

int main(int argc, char** argv) {
  std::vector<std::string> args(argv + 1, argv + argc);
  strata::sdk::ClientOptions options;
  if (args.size() == 3) {
    options.coordinator = args.front();
    args.erase(args.begin());
  }
  if (args.size() != 2) {
    std::cerr << "usage: strata-example-ask [HOST:PORT] MODEL QUESTION\n";
    return 2;
  }

  auto client = strata::sdk::Client::Connect(options);
  if (!client.ok()) {
    return Fail(client.status());
  }

  strata::sdk::GenerateRequest request;
  request.model = args[0];
  request.prompt = std::vector<strata::sdk::ChatMessage>{{.role = "user", .content = args[1]}};
  request.max_tokens = 256;
  request.sampling.temperature = 0;  // The same question gets the same answer.

  strata::sdk::CallOptions call;
  call.timeout = std::chrono::seconds(60);
  auto stream = (*client)->Stream(request, call);
  if (!stream.ok()) {
    return Fail(stream.status());
  }
  while (true) {
    auto piece = stream->Next();  // Waits; goes on by itself if the connection is lost.
    if (!piece.ok()) {
      return Fail(piece.status());
    }
    if (!piece->has_value()) {
      break;
    }
    std::cout << (*piece)->text << std::flush;
  }
  std::cout << "\n";

  const strata::sdk::Generation& answer = stream->result();
  std::cerr << answer.token_ids.size() << " tokens, " << answer.finish_reason << ", computed as "
            << answer.numerics_class << "\n";
  return EXIT_SUCCESS;
}
