// Frames at a pipeline of shard runners: wrong shapes, lengths, epochs, positions, sizes and
// fingerprints, and headers of any bytes. A bystander's request is computed in between and must
// always get the tokens of the oracle; at the end every page is free and a new request is right.
#include <map>

#include "common/check.h"
#include "tests/fuzz/input.h"
#include "tests/fuzz/quiet_protobuf.h"
#include "tests/worker/runner/chain.h"

namespace strata {
namespace {

using namespace strata::testing;  // NOLINT(google-build-using-namespace)

constexpr uint32_t kVocab = 61;
constexpr uint32_t kWindow = 24;
constexpr char kBystander[] = "bystander";
constexpr int kMaxRounds = 24;
constexpr uint32_t kMaxBystander = 60;

ChainOptions Options(fuzz::Input* input) {
  ChainOptions options;
  options.stages = 1 + input->Below(3);
  options.model = HashModel(6, {{KvKind::kFull, 0}, {KvKind::kWindow, kWindow}}, kVocab);
  options.pages = {24, 20};
  options.context = 96;
  options.max_batch_tokens = 64;
  options.max_batch_items = 5;
  return options;
}

class StepFrames {
 public:
  explicit StepFrames(fuzz::Input* input) : input_(*input), chain_(Options(input)) { Extend(); }

  void Run() {
    for (int round = 0; round < kMaxRounds && !input_.empty(); ++round) {
      switch (input_.Below(8)) {
        case 0:
          Extend();
          break;
        case 1:
          BreakBetweenStages();
          break;
        case 2:
          FirstFrameOfAnEpoch();
          break;
        case 3:
          DropAll();
          break;
        default:
          SendBad();
      }
    }
    Extend();
    End();
  }

 private:
  struct Outcome {
    bool taken = false;   // By every stage.
    uint32_t stages = 0;  // That took it.
    ResultMessage result;
  };

  v1::SequenceName Bystander() const { return Name(kBystander, generation_); }
  v1::SequenceName DrawName() {
    const uint64_t generation = input_.Below(8) == 0 ? input_.Number() : newest_ + input_.Below(3);
    return Name("r" + std::to_string(generation % 3), generation);
  }
  std::vector<uint32_t> DrawIds(uint32_t most) {
    return Prompt(1 + input_.Below(most), input_.Below(4), kVocab);
  }

  // What a frame may name: not the bystander, and no generation after which there is none.
  void Restrict(v1::StepFrame* frame) {
    const auto fix = [this](v1::SequenceName* name) {
      if (name->request_id() == kBystander) {
        name->set_request_id("other");
      }
      name->set_generation(name->generation() % (uint64_t{1} << 60));
      newest_ = std::max(newest_, name->generation());
    };
    for (v1::StepItem& item : *frame->mutable_items()) {
      fix(item.mutable_sequence());
    }
    for (v1::StepCommand& command : *frame->mutable_commands()) {
      if (command.has_fork()) {
        fix(command.mutable_fork()->mutable_source());
        fix(command.mutable_fork()->mutable_destination());
      } else if (command.has_truncate()) {
        fix(command.mutable_truncate()->mutable_sequence());
      } else if (command.has_release()) {
        fix(command.mutable_release()->mutable_sequence());
      }
    }
  }

  void CheckResult(const v1::StepFrame& frame, const v1::StepResult& result) {
    STRATA_CHECK(result.items_size() == frame.items_size());
    STRATA_CHECK(result.commands_size() == frame.commands_size());
    STRATA_CHECK(result.stages_size() == static_cast<int>(chain_.options().stages));
    for (const v1::StageKv& stage : result.stages()) {
      for (int group = 0; group < stage.free_pages_size(); ++group) {
        STRATA_CHECK(stage.free_pages(group) <= chain_.options().pages[group]);
      }
    }
    for (int i = 0; i < result.items_size(); ++i) {
      const v1::ItemResult& item = result.items(i);
      // An error that the frame came with travels on as it is.
      STRATA_CHECK(!item.has_error() || frame.items(i).has_error() ||
                   !item.error().reason().empty());
      for (const v1::TokenLogprob& token : item.tokens()) {
        STRATA_CHECK(token.token_id() < kVocab);
      }
    }
  }

  Outcome Send(StepMessage frame) {
    const v1::StepFrame header = frame.header;
    Outcome outcome;
    for (uint32_t s = 0; s < chain_.options().stages; ++s) {
      auto output = chain_.runner(s).Step(std::move(frame));
      if (!output.ok()) {
        STRATA_CHECK(!ReasonOf(output.status()).empty());
        return outcome;
      }
      if (std::holds_alternative<ShardRunner::Discarded>(*output)) {
        return outcome;
      }
      ++outcome.stages;
      if (auto* next = std::get_if<StepMessage>(&*output)) {
        frame = std::move(*next);
      } else {
        outcome.result = std::get<ResultMessage>(std::move(*output));
        outcome.taken = true;
      }
    }
    STRATA_CHECK(outcome.taken && header.epoch() == epoch_ && header.step() == step_ + 1);
    step_ = header.step();
    CheckResult(header, outcome.result.header);
    return outcome;
  }

  StepMessage Frame() {
    StepMessage frame;
    frame.header.set_deployment(kDeployment);
    frame.header.set_epoch(epoch_);
    frame.header.set_step(step_ + 1);
    frame.header.set_committed_step(step_);
    return frame;
  }

  void CountRows(StepMessage* frame) {
    uint32_t rows = 0;
    for (const v1::StepItem& item : frame->header.items()) {
      rows += static_cast<uint32_t>(item.token_ids_size());
    }
    frame->header.set_rows(rows);
  }

  // ---- the bystander

  // Its next item; a new sequence where it has none or is long enough.
  v1::StepItem NextItem() {
    if (ids_.empty()) {
      generation_ = ++newest_;
      ids_ = Prompt(20, 1, kVocab);
      length_ = 0;
    }
    return Item(Bystander(), ids_, length_, static_cast<uint32_t>(ids_.size()));
  }

  // Whether the item was computed; pages may be short while others hold them.
  bool TakeToken(const v1::ItemResult& result) {
    if (result.has_error()) {
      STRATA_CHECK(result.error().reason() == "KV_PAGES");
      if (length_ == 0) {
        ids_.clear();
      }
      return false;
    }
    STRATA_CHECK(result.tokens_size() == 1);
    const uint32_t token = result.tokens(0).token_id();
    STRATA_CHECK(token == Argmax(HashLogits(chain_.options().model, ids_).back()));
    length_ = static_cast<uint32_t>(ids_.size());
    ids_.push_back(token);
    return true;
  }

  void Extend() {
    if (ids_.size() > kMaxBystander) {
      ids_.clear();
      Resync();
    }
    for (int tries = 0;; ++tries) {
      StepMessage frame = Frame();
      *frame.header.add_items() = NextItem();
      CountRows(&frame);
      const Outcome outcome = Send(std::move(frame));
      STRATA_CHECK(outcome.taken);
      if (TakeToken(outcome.result.header.items(0))) {
        return;
      }
      STRATA_CHECK(tries == 0);
      Resync();  // Releases the others.
    }
  }

  void Fence() {
    ++epoch_;
    step_ = 0;
    for (uint32_t s = 0; s < chain_.options().stages; ++s) {
      STRATA_CHECK(chain_.runner(s).Fence(epoch_).ok());
      STRATA_CHECK(!chain_.runner(s).Fence(epoch_ - 1).ok());
    }
  }

  // A new epoch, in which only the bystander is left.
  void Resync() {
    Fence();
    StepMessage frame = Frame();
    frame.header.set_resync(true);
    if (length_ > 0 && !ids_.empty()) {
      *frame.header.add_commands() = Truncate(Bystander(), std::span(ids_).first(length_));
    }
    const Outcome outcome = Send(std::move(frame));
    STRATA_CHECK(outcome.taken);
    for (const v1::CommandResult& command : outcome.result.header.commands()) {
      STRATA_CHECK(!command.has_error());
    }
    const uint64_t live = outcome.result.header.commands_size();
    for (uint32_t s = 0; s < chain_.options().stages; ++s) {
      STRATA_CHECK(chain_.runner(s).stats().sequences == live);
      if (live == 0) {
        for (int group = 0; group < 2; ++group) {
          STRATA_CHECK(FreePages(outcome.result, static_cast<int>(s), group) ==
                       chain_.options().pages[group]);
        }
      }
    }
  }

  // ---- what is wrong

  void DrawCommand(v1::StepFrame* frame) {
    const auto ids = DrawIds(40);
    switch (input_.Below(3)) {
      case 0:
        *frame->add_commands() = Fork(DrawName(), DrawName(), ids);
        break;
      case 1:
        *frame->add_commands() = Truncate(DrawName(), ids);
        break;
      default:
        *frame->add_commands() = Release(DrawName());
    }
  }

  void DrawItem(v1::StepFrame* frame) {
    const auto ids = DrawIds(40);
    const uint32_t position = input_.Bool() ? 0 : input_.Below(static_cast<uint32_t>(ids.size()));
    *frame->add_items() = Item(DrawName(), ids, position, static_cast<uint32_t>(ids.size()));
  }

  void ChangeSampling(v1::SequenceParams* params) {
    v1::SamplingParams* sampling = params->mutable_sampling();
    const float value = input_.Float();
    switch (input_.Below(10)) {
      case 0:
        return sampling->set_temperature(value);
      case 1:
        return sampling->set_top_k(static_cast<uint32_t>(input_.Number()));
      case 2:
        return sampling->set_top_p(value);
      case 3:
        return sampling->set_min_p(value);
      case 4:
        return sampling->set_typical_p(value);
      case 5:
        return sampling->set_repetition_penalty(value);
      case 6:
        (*sampling->mutable_logit_bias())[static_cast<uint32_t>(input_.Number())] = value;
        return;
      case 7:
        params->set_logprobs(true);
        params->set_top_logprobs(static_cast<uint32_t>(input_.Number()));
        return params->set_prompt_top_logprobs(static_cast<uint32_t>(input_.Number()));
      case 8:
        params->set_prompt_length(static_cast<uint32_t>(input_.Number()));
        return params->set_adapter_slot(input_.Below(2));
      default:
        return sampling->clear_seed();
    }
  }

  void ChangeItem(v1::StepItem* item) {
    const uint64_t number = input_.Number();
    const auto small = static_cast<uint32_t>(number);
    switch (input_.Below(14)) {
      case 0:
        return item->set_position(small);
      case 1:
        return item->set_fingerprint(number);
      case 2:
        item->mutable_token_ids()->Resize(static_cast<int>(small % 300), small);
        return;
      case 3:
        return item->add_token_ids(small);
      case 4:
        return item->clear_token_ids();
      case 5:
        return item->set_following_id(small);
      case 6:
        item->set_rows_from(small);
        return item->set_rows_wanted(static_cast<v1::RowsWanted>(input_.Below(8)));
      case 7:
        return item->set_sample(!item->sample());
      case 8:
        return item->mutable_sequence()->set_request_id(input_.Text());
      case 9:
        return item->mutable_sequence()->set_generation(number);
      case 10:
        item->set_error_stage(small);
        return item->mutable_error()->set_code(static_cast<int32_t>(small));
      case 11:
        return item->clear_params();
      case 12:
        item->add_embedding_rows()->set_position(small);
        item->set_draft_tokens(input_.Below(2));
        return item->set_last_stage_payload(input_.Text());
      default:
        return ChangeSampling(item->mutable_params());
    }
  }

  void ChangeCommand(v1::StepCommand* command) {
    const uint64_t number = input_.Number();
    if (command->has_fork()) {
      input_.Bool() ? command->mutable_fork()->set_length(static_cast<uint32_t>(number))
                    : command->mutable_fork()->set_fingerprint(number);
    } else if (command->has_truncate()) {
      input_.Bool() ? command->mutable_truncate()->set_length(static_cast<uint32_t>(number))
                    : command->mutable_truncate()->set_fingerprint(number);
    } else {
      command->clear_kind();
    }
    command->set_error_stage(static_cast<uint32_t>(number));
  }

  void ChangeFrame(StepMessage* frame) {
    const uint64_t number = input_.Number();
    v1::StepFrame& header = frame->header;
    switch (input_.Below(9)) {
      case 0:
        return header.set_deployment(number);
      case 1:
        return header.set_epoch(number);
      case 2:
        return header.set_step(number);
      case 3:
        return header.set_committed_step(number);
      case 4:
        return header.set_rows(static_cast<uint32_t>(number));
      case 5:
        return header.add_stages()->set_stage(static_cast<uint32_t>(number));
      case 6:
        return header.set_resync(true);
      case 7:
        frame->payload.resize(number % 1000);
        return;
      default:
        header.add_stages()->add_free_pages(number);
    }
  }

  StepMessage DrawFrame() {
    StepMessage frame = Frame();
    for (uint32_t i = input_.Below(3); i > 0; --i) {
      DrawCommand(&frame.header);
    }
    for (uint32_t i = input_.Below(4); i > 0; --i) {
      DrawItem(&frame.header);
    }
    for (uint32_t i = input_.Below(3); i > 0; --i) {
      if (frame.header.items_size() > 0) {
        ChangeItem(frame.header.mutable_items(static_cast<int>(input_.Byte()) %
                                              frame.header.items_size()));
      }
      if (frame.header.commands_size() > 0 && input_.Bool()) {
        ChangeCommand(frame.header.mutable_commands(static_cast<int>(input_.Byte()) %
                                                    frame.header.commands_size()));
      }
    }
    CountRows(&frame);
    return frame;
  }

  // A frame of drawn items, of changed bytes, or of any bytes; the bystander's item may be in it.
  void SendBad() {
    StepMessage frame = DrawFrame();
    const uint32_t kind = input_.Below(6);
    if (kind == 0) {
      frame.header.Clear();
      (void)frame.header.ParseFromString(input_.Text());
    } else if (kind == 1) {
      std::string bytes = frame.header.SerializeAsString();
      for (uint32_t i = input_.Below(4); i > 0; --i) {
        bytes[input_.Number() % bytes.size()] ^= static_cast<char>(1 << input_.Below(8));
      }
      frame.header.Clear();
      (void)frame.header.ParseFromString(bytes);
    }
    Restrict(&frame.header);
    const bool with_bystander = input_.Bool() && ids_.size() <= kMaxBystander;
    if (with_bystander) {
      *frame.header.add_items() = NextItem();
      frame.header.set_rows(frame.header.rows() + static_cast<uint32_t>(ids_.size()) - length_);
    }
    if (kind == 2) {
      ChangeFrame(&frame);
    }
    const Outcome outcome = Send(std::move(frame));
    if (outcome.taken && with_bystander) {
      const v1::StepResult& header = outcome.result.header;
      TakeToken(header.items(header.items_size() - 1));
    } else if (outcome.taken || outcome.stages == 0) {
      ForgetUnsent();
    }
    if (!outcome.taken && outcome.stages > 0) {
      ForgetUnsent();
      Resync();  // Stages before the one that refused have run the step.
    }
  }

  // The bystander's sequence was to be created by a frame that was refused.
  void ForgetUnsent() {
    if (length_ == 0) {
      ids_.clear();
    }
  }

  // What stage 0 sent on is changed on its way.
  void BreakBetweenStages() {
    if (chain_.options().stages < 2) {
      return;
    }
    StepMessage frame = DrawFrame();
    Restrict(&frame.header);
    auto output = chain_.runner(0).Step(std::move(frame));
    if (!output.ok()) {
      return;
    }
    StepMessage sent = std::get<StepMessage>(*std::move(output));
    for (uint32_t i = input_.Below(4); i > 0 && !sent.payload.empty(); --i) {
      const uint32_t value = input_.Below(6);
      sent.payload[input_.Number() % sent.payload.size()] =
          value == 0   ? std::numeric_limits<float>::quiet_NaN()
          : value == 1 ? std::numeric_limits<float>::infinity()
                       : static_cast<float>(input_.Number() % 65536);
    }
    if (input_.Bool()) {
      ChangeFrame(&sent);
    }
    if (input_.Bool() && sent.header.items_size() > 0) {
      ChangeItem(sent.header.mutable_items(0));
    }
    Restrict(&sent.header);
    (void)chain_.runner(1).Step(std::move(sent));
    Resync();
  }

  void FirstFrameOfAnEpoch() {
    Fence();
    StepMessage frame = DrawFrame();
    frame.header.set_resync(input_.Below(4) > 0);
    frame.header.set_committed_step(0);
    Restrict(&frame.header);
    Send(std::move(frame));
    // It named nobody that is known to be held.
    ids_.clear();
    length_ = 0;
    Resync();
  }

  void DropAll() {
    for (uint32_t s = 0; s < chain_.options().stages; ++s) {
      chain_.runner(s).DropAllSequences();
    }
    ids_.clear();
    length_ = 0;
  }

  void End() {
    ids_.clear();
    length_ = 0;
    Resync();
    Extend();
    Extend();
  }

  fuzz::Input& input_;
  Chain chain_;
  uint64_t epoch_ = kEpoch;
  uint64_t step_ = 0;
  uint64_t newest_ = 0;  // Generation that a frame named.
  // The bystander's tokens, of which `length_` are computed; none: not there.
  std::vector<uint32_t> ids_;
  uint32_t length_ = 0;
  uint64_t generation_ = 0;
};

}  // namespace
}  // namespace strata

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  strata::fuzz::Input input(data, size);
  strata::StepFrames(&input).Run();
  return 0;
}
