// What a process that compiles grammars is asked, and what it answers, as bytes. Pure; any thread.
#ifndef STRATA_TEXT_MASKS_MASK_REQUEST_H_
#define STRATA_TEXT_MASKS_MASK_REQUEST_H_

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace strata {

struct MaskRequest {
  std::vector<std::string> tokens;
  std::vector<int32_t> stop_ids;
  std::string ebnf;
};

std::string Encode(const MaskRequest& request);
// Nothing for bytes that are no request.
std::optional<MaskRequest> DecodeMaskRequest(std::string_view bytes);

// A compiled grammar as text, or what is wrong with the grammar, or what it takes too much of.
struct MaskAnswer {
  enum class Kind { kCompiled, kInvalid, kTooExpensive };
  Kind kind = Kind::kInvalid;
  std::string text;
};

std::string Encode(const MaskAnswer& answer);
std::optional<MaskAnswer> DecodeMaskAnswer(std::string_view bytes);

}  // namespace strata

#endif  // STRATA_TEXT_MASKS_MASK_REQUEST_H_
