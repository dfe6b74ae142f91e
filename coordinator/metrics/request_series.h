// What is counted of the requests of one model.
#ifndef STRATA_COORDINATOR_METRICS_REQUEST_SERIES_H_
#define STRATA_COORDINATOR_METRICS_REQUEST_SERIES_H_

#include <prometheus/counter.h>
#include <prometheus/histogram.h>
#include <prometheus/metric_family.h>

#include <map>
#include <memory>
#include <string>
#include <vector>

namespace strata {

// Any thread.
struct RequestSeries {
  RequestSeries();

  prometheus::Counter stop, length, cancelled, failed, refused;  // How requests ended.
  prometheus::Counter prompt_tokens, cached_tokens, generation_tokens;
  prometheus::Histogram first_token, inter_token, total, queue, prefill, decode, hops;
  // From the last byte to the decision, and the parts that this is made of.
  prometheus::Histogram admission, to_thread, prepare, to_loop, decide;

  prometheus::Counter* Ended(const std::string& reason);  // Null: no such reason.
};

std::vector<prometheus::MetricFamily> RequestFamilies(
    const std::map<std::string, std::shared_ptr<RequestSeries>>& models);

}  // namespace strata

#endif  // STRATA_COORDINATOR_METRICS_REQUEST_SERIES_H_
