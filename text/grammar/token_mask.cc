#include "text/grammar/token_mask.h"

#include <dlpack/dlpack.h>
#include <xgrammar/xgrammar.h>

#include <algorithm>
#include <exception>
#include <new>
#include <utility>
#include <variant>

#include "absl/strings/str_cat.h"
#include "common/status.h"

namespace strata {
namespace {

constexpr char kInvalid[] = "GRAMMAR_INVALID";
constexpr char kFailed[] = "MASK_FAILED";
constexpr char kTooExpensive[] = "GRAMMAR_TOO_EXPENSIVE";

// What `call` returns; an exception of XGrammar's as an error of that reason.
template <typename Call>
auto Guarded(std::string_view reason, const Call& call) -> absl::StatusOr<decltype(call())> {
  std::string what;
  try {
    return call();
  } catch (const std::bad_alloc&) {
    return Error(absl::StatusCode::kInvalidArgument, kTooExpensive, "there is no memory for it");
  } catch (const std::exception& exception) {
    what = exception.what();
  } catch (...) {
    what = "an unknown exception";
  }
  if (reason == kFailed) {
    return Error(absl::StatusCode::kInternal, reason,
                 absl::StrCat("XGrammar made no mask: ", what.substr(0, 300)));
  }
  return Error(absl::StatusCode::kInvalidArgument, reason,
               absl::StrCat("XGrammar refuses the grammar: ", what.substr(0, 300)));
}

}  // namespace

struct TokenVocabulary::Impl {
  size_t size;
  xgrammar::TokenizerInfo info;
};

struct CompiledGrammar::Impl {
  xgrammar::CompiledGrammar grammar;
};

struct TokenMatcher::Impl {
  std::shared_ptr<const CompiledGrammar> grammar;
  xgrammar::GrammarMatcher matcher;
};

TokenVocabulary::TokenVocabulary(std::unique_ptr<const Impl> impl) : impl_(std::move(impl)) {}
TokenVocabulary::~TokenVocabulary() = default;
size_t TokenVocabulary::size() const { return impl_->size; }

absl::StatusOr<std::shared_ptr<const TokenVocabulary>> TokenVocabulary::Make(
    const std::vector<std::string>& tokens, const std::vector<int32_t>& stop_ids) {
  for (const int32_t id : stop_ids) {
    if (id < 0 || static_cast<size_t>(id) >= tokens.size()) {
      return Error(absl::StatusCode::kInvalidArgument, "INVALID_VOCABULARY",
                   absl::StrCat("the stop token ", id, " is none of the ", tokens.size(),
                                " tokens of the vocabulary"));
    }
  }
  ASSIGN_OR_RETURN(
      auto impl, Guarded("INVALID_VOCABULARY", [&] {
        return std::make_unique<const Impl>(Impl{
            tokens.size(), xgrammar::TokenizerInfo(tokens, xgrammar::VocabType::RAW,
                                                   static_cast<int>(tokens.size()), stop_ids)});
      }));
  return std::shared_ptr<const TokenVocabulary>(new TokenVocabulary(std::move(impl)));
}

CompiledGrammar::CompiledGrammar(std::unique_ptr<const Impl> impl,
                                 std::shared_ptr<const TokenVocabulary> vocabulary)
    : impl_(std::move(impl)), vocabulary_(std::move(vocabulary)) {}
CompiledGrammar::~CompiledGrammar() = default;

absl::StatusOr<std::shared_ptr<const CompiledGrammar>> CompiledGrammar::Compile(
    const std::string& ebnf, std::shared_ptr<const TokenVocabulary> vocabulary) {
  ASSIGN_OR_RETURN(auto impl, Guarded(kInvalid, [&] {
                     xgrammar::GrammarCompiler compiler(vocabulary->impl_->info, /*max_threads=*/1,
                                                        /*cache_enabled=*/false);
                     return std::make_unique<const Impl>(Impl{compiler.CompileGrammar(ebnf)});
                   }));
  return std::shared_ptr<const CompiledGrammar>(
      new CompiledGrammar(std::move(impl), std::move(vocabulary)));
}

absl::StatusOr<std::shared_ptr<const CompiledGrammar>> CompiledGrammar::Deserialize(
    const std::string& serialized, std::shared_ptr<const TokenVocabulary> vocabulary) {
  ASSIGN_OR_RETURN(auto read, Guarded(kInvalid, [&] {
                     return xgrammar::CompiledGrammar::DeserializeJSON(serialized,
                                                                       vocabulary->impl_->info);
                   }));
  if (!std::holds_alternative<xgrammar::CompiledGrammar>(read)) {
    return Error(absl::StatusCode::kInvalidArgument, kInvalid,
                 "what should be a compiled grammar of this vocabulary is none");
  }
  auto impl = std::make_unique<const Impl>(Impl{std::get<xgrammar::CompiledGrammar>(read)});
  return std::shared_ptr<const CompiledGrammar>(
      new CompiledGrammar(std::move(impl), std::move(vocabulary)));
}

absl::StatusOr<std::string> CompiledGrammar::Serialize() const {
  return Guarded(kInvalid, [&] { return impl_->grammar.SerializeJSON(); });
}

size_t CompiledGrammar::bytes() const { return impl_->grammar.MemorySizeBytes(); }

TokenMatcher::TokenMatcher(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
TokenMatcher::~TokenMatcher() = default;

absl::StatusOr<std::unique_ptr<TokenMatcher>> TokenMatcher::Make(
    std::shared_ptr<const CompiledGrammar> grammar) {
  ASSIGN_OR_RETURN(auto impl, Guarded(kFailed, [&] {
                     xgrammar::GrammarMatcher matcher(grammar->impl_->grammar);
                     return std::make_unique<Impl>(Impl{std::move(grammar), std::move(matcher)});
                   }));
  return std::unique_ptr<TokenMatcher>(new TokenMatcher(std::move(impl)));
}

absl::Status TokenMatcher::FillMask(std::span<uint32_t> mask) {
  int64_t words = static_cast<int64_t>(mask.size());
  DLTensor tensor{.data = mask.data(),
                  .device = {kDLCPU, 0},
                  .ndim = 1,
                  .dtype = xgrammar::GetBitmaskDLType(),
                  .shape = &words,
                  .strides = nullptr,
                  .byte_offset = 0};
  if (impl_->matcher.IsTerminated()) {
    std::fill(mask.begin(), mask.end(), 0);
    return absl::OkStatus();
  }
  return Guarded(kFailed, [&] { return impl_->matcher.FillNextTokenBitmask(&tensor); }).status();
}

absl::StatusOr<bool> TokenMatcher::Accept(int32_t token) {
  if (token < 0 || static_cast<size_t>(token) >= impl_->grammar->vocabulary().size() ||
      impl_->matcher.IsTerminated()) {
    return false;
  }
  ASSIGN_OR_RETURN(const bool accepted,
                   Guarded(kFailed, [&] { return impl_->matcher.AcceptToken(token); }));
  taken_ += accepted ? 1 : 0;
  return accepted;
}

absl::Status TokenMatcher::Rollback(size_t count) {
  if (count > taken_) {
    return Error(absl::StatusCode::kInvalidArgument, kFailed,
                 absl::StrCat("cannot take back ", count, " tokens of ", taken_));
  }
  const auto done = Guarded(kFailed, [&] {
    impl_->matcher.Rollback(static_cast<int>(count));
    return true;
  });
  RETURN_IF_ERROR(done.status());
  taken_ -= count;
  return absl::OkStatus();
}

bool TokenMatcher::IsComplete() const {
  return impl_->matcher.IsTerminated() || impl_->matcher.IsCompleted();
}

}  // namespace strata
