// One tokenizer and one text, for tests/bench/tokenizers.py: each line on stdin encodes the text
// once and prints the seconds that it took; the ids of the last time are written at the end.
#include <chrono>
#include <cstdio>
#include <fstream>
#include <iostream>
#include <iterator>
#include <string>

#include "common/status.h"
#include "coordinator/tokenizer/tokenizer.h"

namespace {

std::string ReadAll(const char* path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 4) {
    std::fprintf(stderr, "tokenizer_bench TOKENIZER.JSON TEXT IDS\n");
    return 2;
  }
  const auto tokenizer = strata::ParseTokenizer(ReadAll(argv[1]));
  if (!tokenizer.ok()) {
    std::fprintf(stderr, "%s\n", strata::Describe(tokenizer.status()).c_str());
    return 1;
  }
  const std::string text = ReadAll(argv[2]);
  std::vector<uint32_t> ids;
  for (std::string line; std::getline(std::cin, line);) {
    const auto begin = std::chrono::steady_clock::now();
    auto encoded = (*tokenizer)->Encode(text, /*add_special_tokens=*/false);
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
    if (!encoded.ok()) {
      std::fprintf(stderr, "%s\n", strata::Describe(encoded.status()).c_str());
      return 1;
    }
    ids = *std::move(encoded);
    std::printf("%.9f\n", took.count());
    std::fflush(stdout);
  }
  std::ofstream(argv[3], std::ios::binary)
      .write(reinterpret_cast<const char*>(ids.data()),
             static_cast<std::streamsize>(ids.size() * sizeof(ids[0])));
  return 0;
}
