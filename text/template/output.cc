#include "text/template/output.h"

#include "text/template/escape.h"
#include "text/template/failure.h"
#include "text/template/printing.h"

namespace strata::jinja {

void Output::Write(std::string_view text) {
  bytes_ += text.size();
  if (bytes_ > runtime_.limits().max_output_bytes) {
    FailLimit("the template writes more than " +
              std::to_string(runtime_.limits().max_output_bytes) + " bytes");
  }
  runtime_.StepBytes(text.size());
  target_->append(text);
}

void Output::Print(const Value& value) {
  if (value.IsUndefined()) {
    return;
  }
  if (value.IsString()) {
    if (runtime_.autoescape() && !value.safe()) {
      runtime_.CheckBytes(value.text().size(), 6);
      Write(Escaped(runtime_, value.text()));
    } else {
      Write(value.text());
    }
    return;
  }
  const std::string text = ToString(runtime_, value);
  Write(runtime_.autoescape() ? Escaped(runtime_, text) : text);
}

}  // namespace strata::jinja
