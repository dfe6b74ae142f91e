#include "coordinator/http/http_backend.h"

#include <set>
#include <utility>

#include "common/status.h"
#include "coordinator/service/process/coordinator.h"
#include "coordinator/service/request/request_draws.h"

namespace strata {
namespace {

class CoordinatorGeneration : public HttpGeneration {
 public:
  explicit CoordinatorGeneration(std::shared_ptr<Generation> generation)
      : generation_(std::move(generation)) {}

  void Run(const v1::GenerateRequest& request) override { generation_->Run(request); }
  void Cancel() override { generation_->Cancel(); }
  void ReaderChanged() override { generation_->ReaderChanged(); }

 private:
  const std::shared_ptr<Generation> generation_;
};

class CoordinatorBackend : public HttpBackend {
 public:
  CoordinatorBackend(Coordinator* coordinator,
                     std::function<std::vector<CertificateEnd>()> certificates)
      : coordinator_(coordinator), certificates_(std::move(certificates)) {}

  TimePoint Now() const override { return coordinator_->Now(); }
  absl::StatusOr<std::shared_ptr<Caller>> Authenticate(std::string_view authorization) override {
    return coordinator_->Authenticate(authorization);
  }
  bool Healthy() const override { return coordinator_->Healthy(); }
  std::string DrawRequestId() override { return strata::DrawRequestId(); }
  uint64_t DrawSeed() override { return strata::DrawSeed(); }
  absl::StatusOr<std::vector<v1::Model>> ListModels() override {
    return coordinator_->report()->ListModels();
  }
  absl::StatusOr<v1::Model> GetModel(const std::string& name) override {
    return coordinator_->report()->GetModel(name);
  }
  absl::StatusOr<std::shared_ptr<const ModelRuntime>> GetRuntime(const std::string& name) override {
    return coordinator_->models()->Get(name);
  }
  absl::StatusOr<PromptLimit> LongestPrompt(const std::string& model) override {
    return coordinator_->requests()->LongestPrompt(model);
  }
  absl::StatusOr<std::string> MetricsText() override {
    ASSIGN_OR_RETURN(const auto models, coordinator_->report()->SnapshotModels());
    std::set<std::string> known;
    for (const auto& model : coordinator_->models()->List()) {
      known.insert(model->name);
    }
    coordinator_->metrics()->KeepOnly(known);
    return coordinator_->metrics()->Text(
        models, coordinator_->weight_holders()->sent_bytes(),
        certificates_ ? certificates_() : std::vector<CertificateEnd>());
  }
  std::shared_ptr<HttpGeneration> NewGeneration(const GenerationOptions& options,
                                                GenerationReceiver* receiver) override {
    return std::make_shared<CoordinatorGeneration>(
        std::make_shared<Generation>(coordinator_, options, receiver));
  }

 private:
  Coordinator* const coordinator_;
  const std::function<std::vector<CertificateEnd>()> certificates_;
};

}  // namespace

std::unique_ptr<HttpBackend> MakeHttpBackend(
    Coordinator* coordinator, std::function<std::vector<CertificateEnd>()> certificates) {
  return std::make_unique<CoordinatorBackend>(coordinator, std::move(certificates));
}

}  // namespace strata
