#include "coordinator/tokenizer/decoder.h"

#include "coordinator/tokenizer/byte_alphabet.h"

namespace strata {
namespace {

class ByteLevelStream : public DecoderStream {
 public:
  void Add(std::string_view token, std::string* text) override {
    bytes_.clear();
    for (size_t at = 0; at < token.size();) {
      const auto byte = ByteOfCharacter(NextChar(token, &at));
      if (!byte) {
        assembler_.Add(token, text);
        return;
      }
      bytes_.push_back(static_cast<char>(*byte));
    }
    assembler_.Add(bytes_, text);
  }
  void Finish(std::string* text) override { assembler_.Finish(text); }

 private:
  std::string bytes_;
  Utf8Assembler assembler_;
};

class JoiningStream : public DecoderStream {
 public:
  void Add(std::string_view token, std::string* text) override {
    if (!first_) {
      text->push_back(' ');
    }
    first_ = false;
    text->append(token);
  }
  void Finish(std::string*) override {}

 private:
  bool first_ = true;
};

}  // namespace

std::unique_ptr<DecoderStream> ByteLevelDecoder::NewStream() const {
  return std::make_unique<ByteLevelStream>();
}

std::unique_ptr<DecoderStream> JoiningDecoder::NewStream() const {
  return std::make_unique<JoiningStream>();
}

}  // namespace strata
