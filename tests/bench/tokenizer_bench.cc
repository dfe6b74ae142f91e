// For tests/bench/tokenizers.py. Of one tokenizer and one text: each line on stdin encodes the text
// once and prints the seconds that it took; the ids of the last time are written at the end. Of a
// tokenizer.json or a .gguf file alone: builds the tokenizer once, and prints the seconds.
#include <chrono>
#include <cstdio>
#include <fstream>
#include <iostream>
#include <iterator>
#include <memory>
#include <string>

#include "common/status.h"
#include "text/tokenizer/gguf_tokenizer.h"
#include "text/tokenizer/tokenizer.h"

namespace {

std::string ReadAll(const char* path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

absl::StatusOr<std::unique_ptr<strata::Tokenizer>> Open(const std::string& path) {
  return path.ends_with(".gguf") ? strata::ReadGgufTokenizer(path)
                                 : strata::ParseTokenizer(ReadAll(path.c_str()));
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2 && argc != 4) {
    std::fprintf(stderr, "tokenizer_bench TOKENIZER [TEXT IDS]\n");
    return 2;
  }
  const auto start = std::chrono::steady_clock::now();
  const auto tokenizer = Open(argv[1]);
  const std::chrono::duration<double> built = std::chrono::steady_clock::now() - start;
  if (!tokenizer.ok()) {
    std::fprintf(stderr, "%s\n", strata::Describe(tokenizer.status()).c_str());
    return 1;
  }
  if (argc == 2) {
    std::printf("%.9f\n", built.count());
    return 0;
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
