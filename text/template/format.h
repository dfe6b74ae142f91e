// Python's two ways to format: "%5.2f" % values, and "{:>5}".format(values).
#ifndef STRATA_TEXT_TEMPLATE_FORMAT_H_
#define STRATA_TEXT_TEMPLATE_FORMAT_H_

#include "text/template/runtime.h"
#include "text/template/value.h"

namespace strata::jinja {

// `values`: a tuple, a dict for named directives, or one value.
Value PercentFormat(Runtime& runtime, const Value& format, const Value& values);
Value BraceFormat(Runtime& runtime, const Value& format, const Arguments& arguments);

// A number as %e, %f, %g (and E, F, G) write it.
std::string FormatFloat(Runtime& runtime, double d, char type, int64_t precision, bool alternate);

}  // namespace strata::jinja

#endif  // STRATA_TEXT_TEMPLATE_FORMAT_H_
