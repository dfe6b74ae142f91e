// Frames at a pipeline of shard runners: wrong shapes, lengths, epochs, positions, sizes and
// fingerprints, and headers of any bytes. A bystander's request is computed in between and must
// always get the tokens of the oracle; at the end every page is free and a new request is right.
// Another request comes in slices, good and bad ones, and what becomes of each is as SliceModel
// says.
#include <array>
#include <limits>

#include "common/check.h"
#include "common/token_mask_form.h"
#include "tests/fuzz/input.h"
#include "tests/fuzz/quiet_protobuf.h"
#include "tests/fuzz/slice_model.h"
#include "tests/worker/runner/chain.h"
#include "worker/sampler/sampler.h"

namespace strata {
namespace {

using namespace strata::testing;  // NOLINT(google-build-using-namespace)

constexpr uint32_t kVocab = 61;
constexpr uint32_t kWindow = 24;
constexpr uint32_t kLayers = 6;
constexpr char kBystander[] = "bystander";
constexpr char kSliced[] = "sliced";
constexpr char kFork[] = "fork";
constexpr int kMaxRounds = 24;
constexpr uint32_t kMaxBystander = 60;
constexpr uint32_t kMaxSliced = 80;

ChainOptions Options(fuzz::Input* input) {
  ChainOptions options;
  options.stages = 1 + input->Below(3);
  options.model = HashModel(kLayers, {{KvKind::kFull, 0}, {KvKind::kWindow, kWindow}}, kVocab);
  options.pages = {24, 20};
  options.context = 96;
  options.max_batch_tokens = 64;
  options.max_batch_items = 8;
  return options;
}

class StepFrames {
 public:
  explicit StepFrames(fuzz::Input* input) : input_(*input), chain_(Options(input)) { Extend(); }

  void Run() {
    for (int round = 0; round < kMaxRounds && !input_.empty(); ++round) {
      switch (input_.Below(12)) {
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
        case 4:
        case 5:
        case 6:
        case 7:
          SendSlices();
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
      if (name->request_id() == kBystander || name->request_id() == kSliced ||
          name->request_id() == kFork) {
        name->set_request_id("other");
      }
      name->set_generation(name->generation() % (uint64_t{1} << 60));
      newest_ = std::max(newest_, name->generation());
    };
    for (v1::StepItem& item : *frame->mutable_items()) {
      fix(item.mutable_sequence());
      if (item.end_layer() > 0 && item.end_layer() <= kLayers) {
        begun_[begun_count_++ % begun_.size()] = item;
      }
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
      if (item.has_error() || frame.items(i).end_layer() > 0) {
        STRATA_CHECK(item.tokens().empty() && item.row_logprobs().empty());
        STRATA_CHECK(item.payload_rows() == 0);
      }
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
        STRATA_CHECK(frame.payload.size() ==
                     SliceModel::RowsInto(frame.header, FirstLayer(s + 1)) * kHashHidden);
        if (poisoned_ && !frame.payload.empty()) {
          frame.payload[input_.Number() % frame.payload.size()] =
              std::numeric_limits<float>::quiet_NaN();
        }
      } else {
        outcome.result = std::get<ResultMessage>(std::move(*output));
        outcome.taken = true;
      }
    }
    STRATA_CHECK(outcome.taken && header.epoch() == epoch_ && header.step() == step_ + 1);
    step_ = header.step();
    CheckResult(header, outcome.result.header);
    for (uint32_t s = 0; s < chain_.options().stages; ++s) {
      STRATA_CHECK(ParkedRows(s) <= chain_.options().max_batch_tokens);
    }
    return outcome;
  }

  uint32_t FirstLayer(uint32_t stage) const { return kLayers * stage / chain_.options().stages; }
  uint64_t ParkedRows(uint32_t stage) {
    return chain_.runner(stage).sequences_for_test().ParkedRows();
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

  // A new epoch, in which only the bystander is left, and of the request in slices what all layers
  // have.
  void Resync() {
    Fence();
    StepMessage frame = Frame();
    frame.header.set_resync(true);
    if (length_ > 0 && !ids_.empty()) {
      *frame.header.add_commands() = Truncate(Bystander(), std::span(ids_).first(length_));
    }
    if (sliced_.exists() && !astray_) {
      sliced_.Truncate(sliced_.computed());
      *frame.header.add_commands() = Truncate(Sliced(), sliced_.ids());
    } else {
      ForgetSliced();
    }
    forks_.clear();
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
    if (input_.Below(8) == 0) {
      DrawMask(frame->add_masks());
    }
    if (begun_count_ > 0 && input_.Below(3) == 0) {
      v1::StepItem* item = frame->add_items();
      *item = begun_[input_.Below(begun_.size()) % begun_count_];
      const uint32_t end = item->end_layer() + 1 + input_.Below(kLayers);
      item->set_from_layer(item->end_layer());
      return item->set_end_layer(end <= kLayers ? end : 0);
    }
    const auto ids = DrawIds(40);
    const uint32_t position = input_.Bool() ? 0 : input_.Below(static_cast<uint32_t>(ids.size()));
    *frame->add_items() = Item(DrawName(), ids, position, static_cast<uint32_t>(ids.size()));
    if (input_.Bool()) {
      frame->mutable_items()->rbegin()->set_end_layer(input_.Below(kLayers + 1));
    }
  }

  // Seldom one that makes sense.
  void DrawMask(v1::TokenMask* mask) {
    mask->mutable_name()->set_slot(input_.Below(3));
    if (input_.Bool()) {
      const std::vector<uint32_t> words(MaskWords(kVocab), static_cast<uint32_t>(input_.Number()));
      *mask->mutable_allowed() = EncodeTokenMask(words, kVocab).allowed();
      mask->mutable_name()->set_digest(TokenMaskDigest(words));
      return;
    }
    mask->mutable_name()->set_digest(input_.Number());
    input_.Bool() ? mask->mutable_barred()->add_gaps(static_cast<uint32_t>(input_.Number()))
                  : mask->mutable_allowed()->add_gaps(static_cast<uint32_t>(input_.Number()));
    mask->set_bits(input_.Text());
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
    switch (input_.Below(17)) {
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
        item->mutable_mask()->set_slot(input_.Below(3));
        item->mutable_mask()->set_digest(number);
        if (input_.Bool()) {
          *item->add_draft_masks() = item->mask();
        }
        return item->set_last_stage_payload(input_.Text());
      case 13:
        return item->set_from_layer(small);
      case 14:
        return item->set_end_layer(small);
      case 15:
        item->set_from_layer(small % (kLayers + 2));
        return item->set_end_layer(input_.Below(kLayers + 2));
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

  // ---- a request in slices

  v1::SequenceName Sliced() const { return Name(kSliced, sliced_generation_); }

  // It was released, or is going to be.
  void ForgetSliced() {
    sliced_ = SliceModel(kLayers, chain_.options().context);
    sliced_generation_ = ++newest_;
    astray_ = false;
    sliced_params_ = Greedy();
    if (input_.Bool()) {  // A token that depends on how many are before it, and which.
      *sliced_params_.mutable_sampling() = PlainSampling(1, input_.Byte());
      sliced_params_.mutable_sampling()->set_repetition_penalty(1.5f);
    }
  }

  // Slices beside any frame's items and the bystander's, and commands before them.
  void SendSlices() {
    StepMessage frame = input_.Below(3) == 0 ? DrawFrame() : Frame();
    Restrict(&frame.header);
    if (!sliced_.exists()) {
      ForgetSliced();  // A generation that is new after those.
    }
    const int first_command = frame.header.commands_size();
    const int first_item = frame.header.items_size();
    SliceModel plan = sliced_;
    plan.BeginStep();
    DrawSliceCommand(&frame.header, &plan);
    const uint32_t fault = input_.Below(16);
    fails_ = fault < 4;
    unnoticed_ = fault == 3;
    DrawSlices(&frame.header, &plan);
    if (!fails_ && input_.Bool() && ids_.size() <= kMaxBystander) {
      AddBystander(first_item, &frame.header);
    }
    CountRows(&frame);
    if (input_.Below(16) == 0) {
      ChangeFrame(&frame);
    }
    const v1::StepFrame sent = frame.header;
    const Outcome outcome = SendWithFault(std::move(frame), fault);
    if (outcome.taken) {
      TakeResult(sent, first_command, outcome.result);
      return;
    }
    ForgetUnsent();
    if (outcome.stages > 0) {
      ForgetSliced();
      Resync();
    }
  }

  Outcome SendWithFault(StepMessage frame, uint32_t fault) {
    const uint32_t stage = input_.Below(chain_.options().stages);
    parked_.clear();
    for (uint32_t s = 0; s < chain_.options().stages; ++s) {
      parked_.push_back(ParkedRows(s));
    }
    HashShard& shard = chain_.shard(stage);
    const int items = frame.header.items_size();
    const auto ids = items == 0 ? google::protobuf::RepeatedField<uint32_t>()
                                : frame.header.items(input_.Below(8) % items).token_ids();
    const uint32_t id = ids.empty() ? kVocab : ids[input_.Byte() % ids.size()];
    poisoned_ = fault == 0;
    shard.FailReads(fault == 1);
    shard.FailAtToken(fault == 2 ? id : kVocab);
    if (fault == 3) {
      shard.PoisonToken(id, input_.Below(kLayers));
    } else if (fault == 4) {
      shard.FailNextRead();  // A second try goes well.
    }
    Outcome outcome = Send(std::move(frame));
    poisoned_ = false;
    shard.FailReads(false);
    shard.FailAtToken(kVocab);
    shard.PoisonToken(kVocab, 0);
    return outcome;
  }

  void AddBystander(int first_item, v1::StepFrame* frame) {
    v1::StepItem* item = frame->add_items();
    *item = NextItem();
    WantRows(item);
    if (length_ > 0 && input_.Bool()) {  // One that is new has the newest generation.
      frame->mutable_items()->SwapElements(first_item, frame->items_size() - 1);
    }
  }

  void TakeResult(const v1::StepFrame& sent, int first_command, const ResultMessage& message) {
    sliced_.BeginStep();
    for (int i = first_command; i < sent.commands_size(); ++i) {
      TakeCommand(sent.commands(i), message.header.commands(i));
    }
    std::span<const float> payload = message.payload;
    for (int i = 0; i < sent.items_size(); ++i) {
      const v1::StepItem& item = sent.items(i);
      const v1::ItemResult& result = message.header.items(i);
      const size_t values = size_t{result.payload_rows()} * kVocab;
      STRATA_CHECK(values <= payload.size());
      const auto logits = payload.first(values);
      payload = payload.subspan(values);
      const std::string& id = item.sequence().request_id();
      if (id == kBystander) {
        CheckLogits(item, result, ids_, logits);
        TakeToken(result);
      } else if (id == kSliced) {
        TakeSlice(sent, item, result, logits);
      } else if (id == kFork) {
        TakeFork(item, result);
      }
    }
    STRATA_CHECK(payload.empty());
    astray_ |= unnoticed_;
    for (uint32_t s = 0; !astray_ && s < chain_.options().stages; ++s) {
      sliced_.CheckHeld(Sliced(), FirstLayer(s), FirstLayer(s + 1) - 1,
                        &chain_.runner(s).sequences_for_test());
    }
  }

  void WantRows(v1::StepItem* item) {
    if (input_.Below(3) == 0) {
      item->set_rows_wanted(v1::ROWS_WANTED_LOGITS);
      item->set_rows_from(input_.Below(static_cast<uint32_t>(item->token_ids_size())));
    }
  }

  void DrawSliceCommand(v1::StepFrame* frame, SliceModel* plan) {
    for (const v1::SequenceName& fork : forks_) {
      *frame->add_commands() = Release(fork);
    }
    forks_.clear();
    const uint32_t kind = input_.Below(astray_ ? 3 : 12);
    const uint32_t length = input_.Bool() ? plan->computed() : input_.Below(plan->length() + 1);
    std::vector<uint32_t> prefix(plan->ids().begin(), plan->ids().begin() + length);
    if (length > 0 && input_.Below(8) == 0) {
      prefix[input_.Below(length)] ^= 1;
    }
    if (kind == 0 || plan->length() >= kMaxSliced) {
      *frame->add_commands() = Release(Sliced());
      plan->Release();
    } else if (kind == 1) {
      *frame->add_commands() = Truncate(Sliced(), prefix);
      if (plan->JudgeCut(length, FingerprintOf(prefix)).empty()) {
        plan->Truncate(length);
      }
    } else if (kind == 2 && plan->exists()) {
      forks_.push_back(Name(kFork, ++newest_));
      *frame->add_commands() = Fork(Sliced(), forks_.back(), prefix);
      const auto more = DrawIds(8);
      fork_ids_ = prefix;
      fork_ids_.insert(fork_ids_.end(), more.begin(), more.end());
      fork_is_there_ = false;
      *frame->add_items() =
          Item(forks_.back(), fork_ids_, length, static_cast<uint32_t>(fork_ids_.size()));
    }
  }

  void DrawSlices(v1::StepFrame* frame, SliceModel* plan) {
    std::vector<v1::StepItem> items;
    const auto add = [&](v1::StepItem item) {
      *item.mutable_params() = sliced_params_;
      item.mutable_params()->set_prompt_length(20);
      item.set_sample(input_.Bool());
      WantRows(&item);
      if (plan->Judge(item).empty()) {
        plan->Take(item);
      }
      items.push_back(std::move(item));
    };
    const bool all = input_.Below(4) == 1;  // As far as they may come.
    for (size_t i = 0; i < plan->parts().size();) {
      const SlicePart part = plan->parts()[i];
      const uint32_t most = i == 0 ? SliceModel::kToTheEnd : plan->parts()[i - 1].next;
      const uint32_t end = std::min(most, all ? SliceModel::kToTheEnd : DrawEnd(part.next));
      const size_t parts = plan->parts().size();
      if (end > part.next && (all || input_.Below(4) > 0)) {
        add(plan->Continue(Sliced(), part, end));
      }
      // Rarely once more in the same step.
      i += plan->parts().size() == parts && input_.Below(16) != 1 ? 1 : 0;
    }
    if (plan->length() < kMaxSliced && (items.empty() || input_.Bool())) {
      const uint32_t most =
          plan->parts().empty() ? SliceModel::kToTheEnd : plan->parts().back().next;
      add(plan->Begin(Sliced(), DrawIds(kMaxSliced - plan->length()), std::min(most, DrawEnd(0))));
    }
    if (!items.empty() && input_.Below(3) == 0) {
      const auto count = static_cast<uint32_t>(items.size());
      v1::StepItem wrong = items[input_.Below(count)];
      ChangeSlice(&wrong);
      items.insert(items.begin() + input_.Below(count + 1), wrong);
      std::swap(items[input_.Below(count + 1)], items[input_.Below(count + 1)]);
    }
    for (v1::StepItem& item : items) {
      *frame->add_items() = std::move(item);
    }
  }

  uint32_t DrawEnd(uint32_t from) {
    const uint32_t end = from + 1 + input_.Below(kLayers + 1 - from);
    return end <= kLayers ? end : SliceModel::kToTheEnd;
  }

  void ChangeSlice(v1::StepItem* item) {
    switch (input_.Below(8)) {
      case 0:
        return item->set_position(input_.Below(kMaxSliced));
      case 1:
        return item->set_from_layer(input_.Below(kLayers + 2));
      case 2:
        return item->set_end_layer(input_.Below(kLayers + 2));
      case 3:
        input_.Bool() ? item->set_from_layer(static_cast<uint32_t>(input_.Number()))
                      : item->set_end_layer(static_cast<uint32_t>(input_.Number()));
        return;
      case 4:
        return item->set_token_ids(0, (item->token_ids(0) + 1) % kVocab);
      case 5:
        return item->add_token_ids(input_.Below(kVocab));
      case 6:
        return item->mutable_token_ids()->RemoveLast();
      default:
        return item->set_fingerprint(item->fingerprint() ^ 1);
    }
  }

  void TakeCommand(const v1::StepCommand& command, const v1::CommandResult& result) {
    const std::string& reason = result.error().reason();
    if (command.has_release()) {
      if (command.release().sequence().request_id() == kSliced) {
        STRATA_CHECK(astray_ || reason == (sliced_.exists() ? "" : "SEQUENCE_NOT_FOUND"));
        sliced_.Release();
        astray_ = false;
      }
      return;
    }
    if (astray_) {
      return;
    }
    const bool forks = command.has_fork();
    const uint32_t length = forks ? command.fork().length() : command.truncate().length();
    const std::string expected = sliced_.JudgeCut(
        length, forks ? command.fork().fingerprint() : command.truncate().fingerprint());
    STRATA_CHECK(reason == expected || (expected.empty() && length < sliced_.computed() &&
                                        reason == "WINDOW_NOT_RETAINED"));
    if (forks) {
      fork_is_there_ = reason.empty();
    } else if (reason.empty()) {
      sliced_.Truncate(length);
    }
  }

  // What may come of a slice that is as it should be.
  bool MayBeRefused(const v1::StepFrame& sent, const v1::StepItem& item,
                    const v1::ItemResult& result) {
    const std::string& reason = result.error().reason();
    const uint32_t stage = result.error_stage();
    if (reason == "KV_PAGES") {
      return item.from_layer() == 0;
    }
    if (reason == "PARKED_ROWS") {
      const uint32_t first = FirstLayer(stage);
      return item.from_layer() <= first && item.end_layer() > first &&
             item.end_layer() <= FirstLayer(stage + 1) &&
             parked_[stage] + sent.rows() > chain_.options().max_batch_tokens;
    }
    return fails_ &&
           (reason == "BACKEND_FAILED" || reason == "NON_FINITE" || reason == "SLICE_MISMATCH");
  }

  void TakeSlice(const v1::StepFrame& sent, const v1::StepItem& item, const v1::ItemResult& result,
                 std::span<const float> logits) {
    const std::string expected = sliced_.Judge(item);
    if (astray_) {
      if (expected.empty() && !result.has_error()) {
        sliced_.Take(item);
      }
      return;
    }
    const std::string& reason = result.error().reason();
    if (result.has_error() && expected.empty()) {
      STRATA_CHECK(MayBeRefused(sent, item, result));
      // Stages before that one have taken it, and one that failed at it has dropped what follows.
      astray_ = fails_ || result.error_stage() > 0;
      return;
    }
    STRATA_CHECK(reason == expected || (reason == "PARKED_ROWS" && !expected.empty()));
    if (result.has_error()) {
      return;
    }
    sliced_.Take(item);
    if (item.end_layer() == 0 && !unnoticed_) {
      const size_t end = item.position() + static_cast<size_t>(item.token_ids_size());
      const auto ids = std::span<const uint32_t>(sliced_.ids()).first(end);
      const auto expected_logits = CheckLogits(item, result, ids, logits);
      STRATA_CHECK(result.tokens_size() == (item.sample() ? 1 : 0));
      if (item.sample()) {
        v1::SequenceParams params = sliced_params_;
        params.set_prompt_length(20);
        STRATA_CHECK(result.tokens(0).token_id() ==
                     sampler_.Sample(SampleRequestOf(params, ids), expected_logits).value());
      }
    }
  }

  // Of an item that ends with the last of `ids`; returns the logits after it.
  std::vector<float> CheckLogits(const v1::StepItem& item, const v1::ItemResult& result,
                                 std::span<const uint32_t> ids, std::span<const float> logits) {
    if (result.has_error()) {
      return {};
    }
    const auto expected = HashLogits(chain_.options().model, ids);
    const bool wanted = item.rows_wanted() == v1::ROWS_WANTED_LOGITS;
    const uint32_t rows =
        wanted ? static_cast<uint32_t>(item.token_ids_size()) - item.rows_from() : 0;
    STRATA_CHECK(result.payload_rows() == rows);
    for (uint32_t r = 0; r < rows; ++r) {
      const auto& row = expected[item.position() + item.rows_from() + r];
      STRATA_CHECK(std::equal(row.begin(), row.end(), logits.begin() + size_t{r} * kVocab));
    }
    return expected.back();
  }

  void TakeFork(const v1::StepItem& item, const v1::ItemResult& result) {
    if (result.has_error()) {
      const std::string& reason = result.error().reason();
      STRATA_CHECK(astray_ || fails_ || reason == "KV_PAGES" ||
                   (reason == "SEQUENCE_NOT_FOUND" && !fork_is_there_ && item.position() > 0) ||
                   (reason == "CONTEXT_EXCEEDED" && fork_ids_.size() > chain_.options().context));
    } else if (!astray_) {
      STRATA_CHECK(result.tokens(0).token_id() ==
                   Argmax(HashLogits(chain_.options().model, fork_ids_).back()));
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
    ForgetSliced();
    Resync();
  }

  void DropAll() {
    for (uint32_t s = 0; s < chain_.options().stages; ++s) {
      chain_.runner(s).DropAllSequences();
    }
    ids_.clear();
    length_ = 0;
    ForgetSliced();
  }

  void End() {
    ids_.clear();
    length_ = 0;
    ForgetSliced();
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

  std::array<v1::StepItem, 4> begun_;  // Slices of frames that were drawn, the last ones.
  size_t begun_count_ = 0;

  SliceModel sliced_;
  uint64_t sliced_generation_ = 0;
  v1::SequenceParams sliced_params_;
  bool astray_ = false;                  // Stages hold different parts of it.
  std::vector<v1::SequenceName> forks_;  // To be released.
  std::vector<uint32_t> fork_ids_;
  bool fork_is_there_ = false;
  std::vector<uint64_t> parked_;  // Rows, by stage, before the step at hand.
  bool fails_ = false;            // What was computed in the step at hand was made to fail,
  bool unnoticed_ = false;        // It may be in rows that nobody looks at,
  bool poisoned_ = false;         // or will be between stages.
  Sampler sampler_{kVocab};
};

}  // namespace
}  // namespace strata

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  strata::fuzz::Input input(data, size);
  strata::StepFrames(&input).Run();
  return 0;
}
