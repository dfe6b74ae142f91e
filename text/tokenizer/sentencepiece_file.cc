#include "text/tokenizer/sentencepiece_file.h"

#include <bit>
#include <cmath>
#include <functional>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/file_limits.h"
#include "common/limits.h"
#include "common/status.h"
#include "google/protobuf/io/coded_stream.h"
#include "google/protobuf/wire_format_lite.h"
#include "text/unicode/utf8.h"

namespace strata {
namespace {

using google::protobuf::internal::WireFormatLite;
using google::protobuf::io::CodedInputStream;

// Gemma's has 4 MB.

absl::Status Invalid(std::string_view what) {
  return Error(absl::StatusCode::kInvalidArgument, "TOKENIZER_INVALID",
               "tokenizer.model " + std::string(what));
}

absl::Status Unsupported(std::string_view what) {
  return Error(absl::StatusCode::kUnimplemented, "TOKENIZER_UNSUPPORTED",
               "tokenizer.model " + std::string(what) + " is not supported yet");
}

// One field of a message: a number, or bytes.
struct Field {
  int number = 0;
  uint64_t value = 0;      // Of a varint, or the bits of a fixed number.
  std::string_view bytes;  // Of what has a length.
};

// Hands over each field; false where the bytes are no message.
bool ForEachField(std::string_view message, const std::function<void(const Field&)>& visit) {
  CodedInputStream in(reinterpret_cast<const uint8_t*>(message.data()),
                      static_cast<int>(message.size()));
  while (const uint32_t tag = in.ReadTag()) {
    Field field;
    field.number = WireFormatLite::GetTagFieldNumber(tag);
    uint32_t fixed = 0;
    int length = 0;
    switch (WireFormatLite::GetTagWireType(tag)) {
      case WireFormatLite::WIRETYPE_VARINT:
        if (!in.ReadVarint64(&field.value)) return false;
        break;
      case WireFormatLite::WIRETYPE_FIXED32:
        if (!in.ReadLittleEndian32(&fixed)) return false;
        field.value = fixed;
        break;
      case WireFormatLite::WIRETYPE_FIXED64:
        if (!in.ReadLittleEndian64(&field.value)) return false;
        break;
      case WireFormatLite::WIRETYPE_LENGTH_DELIMITED: {
        if (!in.ReadVarintSizeAsInt(&length)) return false;
        const int at = in.CurrentPosition();
        if (!in.Skip(length)) return false;
        field.bytes = message.substr(static_cast<size_t>(at), static_cast<size_t>(length));
        break;
      }
      default:
        return false;
    }
    visit(field);
  }
  return in.ConsumedEntireMessage();
}

absl::StatusOr<SentencePiece> ReadPiece(std::string_view message, size_t id) {
  SentencePiece piece;
  uint64_t kind = 1;
  const bool good = ForEachField(message, [&](const Field& field) {
    if (field.number == 1) {
      piece.text = field.bytes;
    } else if (field.number == 2) {
      piece.score = std::bit_cast<float>(static_cast<uint32_t>(field.value));
    } else if (field.number == 3) {
      kind = field.value;
    }
  });
  if (!good || piece.text.empty() || FirstInvalidUtf8(piece.text) || !std::isfinite(piece.score) ||
      kind < 1 || kind > 6) {
    return Invalid(absl::StrCat("has a piece ", id, " that is none"));
  }
  piece.kind = static_cast<PieceKind>(kind);
  return piece;
}

// Of the field TrainerSpec.
absl::Status ReadTrainer(std::string_view message, SentencePieceFile* file) {
  uint64_t type = 1;
  bool suffix = false;
  const bool good = ForEachField(message, [&](const Field& field) {
    switch (field.number) {
      case 3:
        type = field.value;
        break;
      case 24:
        suffix = field.value != 0;
        break;
      case 35:
        file->byte_fallback = field.value != 0;
        break;
      case 44:
        file->unknown_surface = field.bytes;
        break;
      case 46:
        file->bos = field.bytes;
        break;
      case 47:
        file->eos = field.bytes;
        break;
    }
  });
  if (!good || FirstInvalidUtf8(file->unknown_surface)) {
    return Invalid("has a trainer_spec that is none");
  }
  if (type != 1 && type != 2) {
    return Unsupported(absl::StrCat("of model_type ", type == 3   ? "WORD"
                                                      : type == 4 ? "CHAR"
                                                                  : absl::StrCat(type)));
  }
  if (suffix) {
    return Unsupported("with treat_whitespace_as_suffix");
  }
  file->unigram = type == 1;
  return absl::OkStatus();
}

// Of the field NormalizerSpec.
absl::Status ReadNormalizer(std::string_view message, SentencePieceFile* file) {
  bool escapes = true;
  const bool good = ForEachField(message, [&](const Field& field) {
    switch (field.number) {
      case 2:
        file->charsmap = field.bytes;
        break;
      case 3:
        file->dummy_prefix = field.value != 0;
        break;
      case 4:
        file->remove_extra_whitespaces = field.value != 0;
        break;
      case 5:
        escapes = field.value != 0;
        break;
    }
  });
  if (!good) {
    return Invalid("has a normalizer_spec that is none");
  }
  return escapes ? absl::OkStatus() : Unsupported("without escape_whitespaces");
}

// What is decoded must not be rewritten.
absl::Status ReadDenormalizer(std::string_view message) {
  bool rewrites = false;
  const bool good = ForEachField(message, [&](const Field& field) {
    rewrites = rewrites || (field.number == 2 && !field.bytes.empty());
  });
  if (!good) {
    return Invalid("has a denormalizer_spec that is none");
  }
  return rewrites ? Unsupported("with a denormalizer_spec") : absl::OkStatus();
}

absl::Status CheckPieces(const SentencePieceFile& file) {
  size_t unknown = 0;
  for (const SentencePiece& piece : file.pieces) {
    unknown += piece.kind == PieceKind::kUnknown ? 1 : 0;
    if (piece.kind == PieceKind::kUnused && !file.unigram) {
      return Unsupported("of BPE with unused pieces");
    }
  }
  return unknown == 1 ? absl::OkStatus()
                      : Invalid(absl::StrCat("has ", unknown, " pieces for the unknown, not one"));
}

}  // namespace

absl::StatusOr<SentencePieceFile> ReadSentencePieceFile(std::string_view bytes) {
  if (bytes.size() > kMaxSentencePieceBytes) {
    return Error(absl::StatusCode::kInvalidArgument, "TOKENIZER_TOO_LARGE",
                 absl::StrCat("tokenizer.model has ", bytes.size(), " bytes"))
        .Limit(absl::StrCat("sentencepiece_bytes=", kMaxSentencePieceBytes));
  }
  SentencePieceFile file;
  absl::Status status;
  const bool good = ForEachField(bytes, [&](const Field& field) {
    if (!status.ok()) {
      return;
    }
    if (field.number == 1) {
      auto piece = ReadPiece(field.bytes, file.pieces.size());
      status = piece.status();
      if (piece.ok()) {
        file.pieces.push_back(*std::move(piece));
      }
      if (file.pieces.size() > kMaxVocabSize) {
        status = Invalid(absl::StrCat("has more than ", kMaxVocabSize, " pieces"));
      }
    } else if (field.number == 2) {
      status = ReadTrainer(field.bytes, &file);
    } else if (field.number == 3) {
      status = ReadNormalizer(field.bytes, &file);
    } else if (field.number == 5) {
      status = ReadDenormalizer(field.bytes);
    }
  });
  RETURN_IF_ERROR(status);
  if (!good || file.pieces.empty()) {
    return Invalid("is no model of SentencePiece's");
  }
  RETURN_IF_ERROR(CheckPieces(file));
  return file;
}

}  // namespace strata
