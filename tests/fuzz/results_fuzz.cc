// Results at the engine: those of right stages, changed; results of any bytes; late, twice and out
// of order; link faults. The ledger's sums hold after each, every session ends, and when the stages
// are right again, so is the next request.
#include <gtest/gtest.h>

#include "common/check.h"
#include "common/status.h"
#include "tests/coordinator/engine/sim_cluster.h"
#include "tests/fuzz/input.h"
#include "tests/fuzz/quiet_protobuf.h"

namespace strata {
namespace {

constexpr int kMaxRounds = 60;
constexpr uint32_t kVocab = 97;

class Results {
 public:
  explicit Results(fuzz::Input* input)
      : input_(*input), cluster_(MakeConfig(1 + input->Below(2), 24)) {
    cluster_.record_frames = false;
    cluster_.Start();
    cluster_.Settle();
  }

  void Run() {
    for (int round = 0; round < kMaxRounds && !input_.empty(); ++round) {
      Round();
      cluster_.ExpectSums();
    }
    cluster_.RunToEnd();
    for (const auto& sink : sinks_) {
      STRATA_CHECK(sink->ended());
    }
    Recover();
    CheckNextRequest();
  }

 private:
  void Round() {
    const uint32_t stages = cluster_.stage_count();
    switch (input_.Below(16)) {
      case 0:
      case 1:
        return Submit();
      case 2:
        cluster_.AcknowledgeFence();
        return;
      case 3:
        cluster_.engine().OnLinkFault(
            input_.Bool() ? cluster_.engine().epoch() : input_.Number(),
            input_.Bool() ? absl::OkStatus() : absl::InternalError(input_.Text()), cluster_.now());
        return;
      case 4:
        return cluster_.Advance(milliseconds(input_.Byte() * 100));
      case 5:
        cluster_.engine().Cancel(
            "scope/q" + std::to_string(input_.Below(4)),
            input_.Bool() ? absl::OkStatus() : Error(absl::StatusCode::kCancelled, "GONE", "gone"),
            cluster_.now());
        return;
      case 6:
        return SendAnyResult();
      case 7:
        if (!cluster_.results.empty()) {
          cluster_.results.push_back(cluster_.results[input_.Byte() % cluster_.results.size()]);
        }
        return;
      case 8:
      case 9:
      case 10:
        ChangeResult();
        cluster_.Deliver(stages);
        return;
      default:
        cluster_.AcknowledgeFence();
        for (uint32_t s = 0; s < stages; ++s) {
          cluster_.Deliver(s);
        }
        if (input_.Bool()) {
          cluster_.Deliver(stages);
        }
    }
  }

  void Submit() {
    SessionRequest request = MakeRequest("q" + std::to_string(sinks_.size() % 4),
                                         1 + input_.Below(64), 1 + input_.Below(8));
    const uint32_t kind = input_.Below(4);
    request.return_logits = kind == 1;
    request.prompt_logprobs = kind == 2;
    if (kind == 3) {
      request.params.set_logprobs(true);
      request.params.set_top_logprobs(2);
    }
    auto sink = std::make_shared<SinkRecord>();
    if (cluster_.TrySubmit(std::move(request), sink).ok()) {
      sinks_.push_back(std::move(sink));
    }
  }

  void SendAnyResult() {
    ResultMessage result;
    (void)result.header.ParseFromString(input_.Text());
    if (input_.Bool()) {
      result.header.set_deployment(cluster_.config().deployment);
      result.header.set_epoch(cluster_.engine().epoch());
    }
    result.payload.resize(input_.Byte());
    cluster_.engine().OnResult(std::move(result), cluster_.now());
  }

  static v1::ErrorDetail MakeError(fuzz::Input* input) {
    v1::ErrorDetail detail;
    detail.set_code(static_cast<int32_t>(input->Number()));
    detail.set_reason(input->Bool() ? "SEQUENCE_NOT_FOUND" : "ANY");
    detail.set_message(std::string(input->Byte() * 16u, 'm'));
    (*detail.mutable_facts())["length"] = std::to_string(input->Number());
    return detail;
  }

  void ChangeItem(v1::ItemResult* item) {
    const auto number = static_cast<uint32_t>(input_.Number());
    switch (input_.Below(8)) {
      case 0:
        return item->mutable_sequence()->set_generation(input_.Number());
      case 1:
        item->add_tokens()->set_token_id(number);
        return;
      case 2:
        return item->clear_tokens();
      case 3:
        if (item->tokens_size() > 0) {
          item->mutable_tokens(0)->set_token_id(number);
          item->mutable_tokens(0)->set_logprob(input_.Float());
        }
        return;
      case 4:
        return item->set_payload_rows(number);
      case 5:
        item->add_row_logprobs()->add_top()->set_token_id(number);
        return;
      case 6:
        item->set_error_stage(number);
        [[fallthrough]];
      default:
        item->clear_tokens();
        item->clear_row_logprobs();
        item->set_payload_rows(0);
        *item->mutable_error() = MakeError(&input_);
    }
  }

  void ChangeStage(v1::StageKv* stage) {
    const uint64_t number = input_.Number();
    switch (input_.Below(4)) {
      case 0:
        return stage->set_stage(static_cast<uint32_t>(number));
      case 1:
        return stage->set_compute_ms(std::bit_cast<double>(input_.Uint64()));
      case 2:
        return stage->add_free_pages(number);
      default:
        if (stage->free_pages_size() > 0) {
          stage->set_free_pages(0, number);
        }
    }
  }

  void ChangeResult() {
    if (cluster_.results.empty()) {
      return;
    }
    ResultMessage& result = cluster_.results.front();
    v1::StepResult& header = result.header;
    for (uint32_t i = 1 + input_.Below(2); i > 0; --i) {
      switch (input_.Below(8)) {
        case 0:
          header.set_step(input_.Number());
          break;
        case 1:
          header.set_epoch(input_.Number());
          break;
        case 2:
          result.payload.resize(input_.Byte() * 4u, input_.Float());
          break;
        case 3:
          *header.add_commands()->mutable_error() = MakeError(&input_);
          break;
        case 4:
          if (header.commands_size() > 0) {
            *header.mutable_commands(0)->mutable_error() = MakeError(&input_);
          }
          break;
        case 5:
          if (header.stages_size() > 0) {
            ChangeStage(header.mutable_stages(input_.Byte() % header.stages_size()));
          }
          break;
        default:
          if (header.items_size() > 0) {
            ChangeItem(header.mutable_items(input_.Byte() % header.items_size()));
          }
      }
    }
  }

  // Whatever was said of the stages so far: all of it is given up, and a new epoch begins.
  void Recover() {
    cluster_.links.assign(cluster_.links.size(), {});
    cluster_.results.clear();
    cluster_.engine().OnLinkFault(cluster_.engine().epoch(), absl::OkStatus(), cluster_.now());
    for (int i = 0; i < 100 && cluster_.Snapshot().state != PipelineState::kRunning; ++i) {
      cluster_.Settle();
      if (const auto wake = cluster_.engine().NextWake()) {
        cluster_.Advance(std::max(nanoseconds(0), *wake - cluster_.now()));
      }
    }
    STRATA_CHECK(cluster_.Snapshot().state == PipelineState::kRunning);
  }

  void CheckNextRequest() {
    const SessionRequest request = MakeRequest("next", 20, 4);
    const auto sink = cluster_.Submit(request);
    cluster_.RunToEnd();
    STRATA_CHECK(sink->tokens == OracleAnswer(request.prompt, 4, kVocab));
    cluster_.Settle();
    cluster_.ExpectEmpty();
  }

  fuzz::Input& input_;
  SimCluster cluster_;
  std::vector<std::shared_ptr<SinkRecord>> sinks_;
};

}  // namespace
}  // namespace strata

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  // What the cluster's own checks find is a finding.
  GTEST_FLAG_SET(break_on_failure, true);
  strata::fuzz::Input input(data, size);
  strata::Results(&input).Run();
  return 0;
}
