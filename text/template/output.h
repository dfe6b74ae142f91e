// The text that a rendering writes.
#ifndef STRATA_TEXT_TEMPLATE_OUTPUT_H_
#define STRATA_TEXT_TEMPLATE_OUTPUT_H_

#include <string>
#include <string_view>
#include <utility>

#include "text/template/runtime.h"
#include "text/template/value.h"

namespace strata::jinja {

class Output {
 public:
  explicit Output(Runtime& runtime) : runtime_(runtime) {}
  Output(const Output&) = delete;
  Output& operator=(const Output&) = delete;

  // Fails where more is written than the limits allow, captures that run among it.
  void Write(std::string_view text);
  // Writes a value as {{ }} does: escaped where that is on, and undefined ones not at all.
  void Print(const Value& value);
  // Of the text and of all captures that run.
  size_t bytes() const { return bytes_; }
  std::string Take() { return std::move(text_); }

  // Until it is taken from, or destroyed, it gets what is written. One that is not taken from,
  // since something failed, stays counted.
  class Capture {
   public:
    explicit Capture(Output& output)
        : output_(output), outer_(std::exchange(output.target_, &text_)) {}
    ~Capture() { output_.target_ = outer_; }
    Capture(const Capture&) = delete;
    Capture& operator=(const Capture&) = delete;

    std::string Take() {
      output_.target_ = outer_;
      output_.bytes_ -= text_.size();
      return std::move(text_);
    }

   private:
    Output& output_;
    std::string text_;
    std::string* const outer_;
  };

 private:
  Runtime& runtime_;
  std::string text_;
  std::string* target_ = &text_;
  size_t bytes_ = 0;
};

}  // namespace strata::jinja

#endif  // STRATA_TEXT_TEMPLATE_OUTPUT_H_
