#include <prometheus/exposer.h>
#include <prometheus/text_serializer.h>

#include <exception>
#include <utility>

#include "common/rpc/address.h"
#include "common/status.h"
#include "worker/service/worker_metrics.h"

namespace strata {
namespace {

// A scrape, and one beside it.
constexpr size_t kThreads = 2;

class Reports : public prometheus::Collectable {
 public:
  explicit Reports(std::function<WorkerReport()> report) : report_(std::move(report)) {}
  std::vector<prometheus::MetricFamily> Collect() const override {
    return WorkerFamilies(report_());
  }

 private:
  const std::function<WorkerReport()> report_;
};

class ExposerServer : public MetricsServer {
 public:
  // Throws what Exposer throws.
  ExposerServer(HostPort address, std::function<WorkerReport()> report)
      : reports_(std::make_shared<Reports>(std::move(report))),
        exposer_(address.ToString(), kThreads) {
    exposer_.RegisterCollectable(reports_);
    const std::vector<int> ports = exposer_.GetListeningPorts();
    if (!ports.empty()) address.port = static_cast<uint16_t>(ports.front());
    address_ = address.ToString();
  }
  std::string address() const override { return address_; }

 private:
  const std::shared_ptr<Reports> reports_;
  prometheus::Exposer exposer_;
  std::string address_;
};

}  // namespace

std::string MetricsText(const WorkerReport& report) {
  return prometheus::TextSerializer().Serialize(WorkerFamilies(report));
}

absl::StatusOr<std::unique_ptr<MetricsServer>> MetricsServer::Start(
    const std::string& address, std::function<WorkerReport()> report) {
  ASSIGN_OR_RETURN(HostPort parsed, ParseHostPort(address));
  // Names are not looked up there.
  if (parsed.host == "localhost") parsed.host = "127.0.0.1";
  std::string why;
  try {
    return std::make_unique<ExposerServer>(std::move(parsed), std::move(report));
  } catch (const std::exception& e) {
    why = e.what();
  }
  return Error(absl::StatusCode::kUnavailable, "CANNOT_LISTEN",
               "cannot listen on " + address + " for metrics: " + why)
      .Hint("choose another with --metrics-listen, as an address of this machine: ADDR:PORT");
}

}  // namespace strata
