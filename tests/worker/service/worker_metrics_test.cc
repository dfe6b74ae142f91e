#include "worker/service/worker_metrics.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <prometheus/text_serializer.h>

#include <sstream>
#include <string>
#include <vector>

#include "common/status.h"

namespace strata {
namespace {

using ::testing::Contains;
using ::testing::Each;
using ::testing::HasSubstr;
using ::testing::Not;

WorkerReport Report() {
  WorkerReport report;
  report.node = "a";
  report.version = "1.2";
  report.backend = "cpu";
  report.isa = "avx2";
  report.platform = "linux";
  report.threads = 4;
  report.joined = true;
  report.memory_limit_bytes = 1000;
  report.certificate_end_s = 1'800'000'001;
  return report;
}

StageReport Stage() {
  StageReport stage;
  stage.model = "m";
  stage.stage = 1;
  stage.kv_groups = {"full"};
  stage.weight_bytes = 500;
  stage.work.steps = 3;
  stage.work.rows = 40;
  stage.work.computed = milliseconds(1500);
  stage.work.waited = milliseconds(20);
  stage.work.received_bytes = 7000;
  stage.work.sent_bytes = 80;
  stage.work.step_time.Add(0.5);
  stage.runner.sequences = 2;
  stage.runner.items_rejected = 1;
  stage.runner.free_pages = {30};
  stage.runner.total_pages = {32};
  return stage;
}

std::vector<std::string> Lines(const WorkerReport& report) {
  std::ostringstream out;
  prometheus::TextSerializer().Serialize(out, WorkerFamilies(report));
  std::vector<std::string> lines;
  std::istringstream in(out.str());
  for (std::string line; std::getline(in, line);) lines.push_back(line);
  return lines;
}

TEST(WorkerMetrics, TellTheNodeAndItsStages) {
  WorkerReport report = Report();
  report.stages.push_back(Stage());
  const auto lines = Lines(report);
  for (
      const char* line : {
          R"(strata_worker_info{node="a",version="1.2",backend="cpu",isa="avx2",platform="linux"} 1)",
          R"(strata_worker_joined{node="a"} 1)",
          R"(strata_worker_threads{node="a"} 4)",
          R"(strata_worker_memory_limit_bytes{node="a"} 1000)",
          R"(strata_worker_certificate_expires_timestamp_seconds{node="a"} 1800000001)",
          R"(strata_worker_weight_bytes{model="m",stage="1",node="a"} 500)",
          R"(strata_worker_compute_seconds_total{model="m",stage="1",node="a"} 1.5)",
          R"(strata_worker_wait_seconds_total{model="m",stage="1",node="a"} 0.02)",
          R"(strata_worker_steps_total{model="m",stage="1",node="a"} 3)",
          R"(strata_worker_rows_total{model="m",stage="1",node="a"} 40)",
          R"(strata_worker_received_bytes_total{model="m",stage="1",node="a"} 7000)",
          R"(strata_worker_sent_bytes_total{model="m",stage="1",node="a"} 80)",
          R"(strata_worker_sequences{model="m",stage="1",node="a"} 2)",
          R"(strata_worker_items_rejected_total{model="m",stage="1",node="a"} 1)",
          R"(strata_worker_step_seconds_bucket{model="m",stage="1",node="a",le="0.3"} 0)",
          R"(strata_worker_step_seconds_bucket{model="m",stage="1",node="a",le="0.5"} 1)",
          R"(strata_worker_kv_pages{model="m",stage="1",node="a",group="full",state="free"} 30)",
          R"(strata_worker_kv_pages{model="m",stage="1",node="a",group="full",state="used"} 2)",
      }) {
    EXPECT_THAT(lines, Contains(line));
  }
}

TEST(WorkerMetrics, WithoutAStageThereAreNoneOfStages) {
  EXPECT_THAT(Lines(Report()), Each(Not(HasSubstr("stage"))));
}

TEST(WorkerMetrics, AnAddressThatCannotBeHadIsNamed) {
  const auto first = MetricsServer::Start("127.0.0.1:0", Report);
  ASSERT_TRUE(first.ok()) << first.status();
  const std::string address = (*first)->address();
  EXPECT_THAT(address, Not(HasSubstr(":0")));
  const auto second = MetricsServer::Start(address, Report);
  EXPECT_TRUE(absl::IsUnavailable(second.status())) << second.status();
  EXPECT_THAT(std::string(second.status().message()), HasSubstr(address));
  EXPECT_TRUE(absl::IsInvalidArgument(MetricsServer::Start("nowhere", Report).status()));
}

}  // namespace
}  // namespace strata
