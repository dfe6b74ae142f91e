// KV that a worker takes over from others: parts of any bytes, and parts of two honest stages that
// are changed, cut, left out, sent twice or for the other one. What is taken has the right tokens
// behind it, and whatever came, every page is free in the end and a new request is right.
#include <utility>
#include <vector>

#include "common/check.h"
#include "tests/fuzz/input.h"
#include "tests/fuzz/quiet_protobuf.h"
#include "tests/worker/runner/chain.h"
#include "worker/runner/carried_page.h"
#include "worker/runner/kv_taker.h"

namespace strata {
namespace {

using namespace strata::testing;  // NOLINT(google-build-using-namespace)

constexpr uint32_t kVocab = 61;
constexpr int kMaxParts = 64;

ChainOptions Options(uint32_t stages) {
  return {.model = HashModel(4, {{KvKind::kFull, 0}, {KvKind::kWindow, 24}}, kVocab),
          .stages = stages,
          .pages = {12, 10},
          .context = 96};
}

class CarriedKv {
 public:
  explicit CarriedKv(fuzz::Input* input)
      : input_(*input), old_(Options(1 + input->Below(2))), old_steps_(&old_) {}

  void Run() {
    for (uint64_t number = 1; number <= 2; ++number) {
      std::vector<uint32_t>& ids =
          ids_.emplace_back(Prompt(1 + input_.Below(40), input_.Below(4), kVocab));
      old_steps_.Run({Item(Named(number), ids, 0, static_cast<uint32_t>(ids.size()))});
    }
    for (const bool final : {false, true}) {
      for (uint32_t source = 0; source < old_.options().stages; ++source) {
        Give(source, final);
      }
    }
    Check();
  }

 private:
  static v1::SequenceName Named(uint64_t number) {
    return Name("r" + std::to_string(number), number);
  }

  void Give(uint32_t source, bool final) {
    v1::CarryKvRequest request = new_.runner(0).DescribeKv();
    const v1::CarryKvRequest own = old_.runner(source).DescribeKv();
    layers_ = {own.first_layer(), own.last_layer()};
    request.set_final(final);
    request.set_pages_only(input_.Below(4) == 0);
    int left = kMaxParts;
    for (bool begins = true;; begins = false) {
      auto parts = old_.runner(source).GiveKv(request, begins);
      STRATA_CHECK(parts.ok());
      if (parts->empty()) {
        return;
      }
      for (v1::CarryKvPart& part : *parts) {
        Send(source, std::move(part));
        STRATA_CHECK(--left > 0);
      }
    }
  }

  void Send(uint32_t source, v1::CarryKvPart part) {
    switch (input_.Below(8)) {
      case 0:
        Change(&part);
        break;
      case 1:
        return;
      case 2:
        Take(source, part);
        break;
      case 3:
        source = KvTaker::kMostSources + input_.Below(6);
        break;
      case 4: {
        std::string bytes = part.SerializeAsString();
        for (uint32_t edits = input_.Below(4); edits > 0 && !bytes.empty(); --edits) {
          bytes[input_.Number() % bytes.size()] = static_cast<char>(input_.Byte());
        }
        part.Clear();
        part.ParsePartialFromString(bytes);
        break;
      }
      case 5:
        part.Clear();
        part.ParsePartialFromString(input_.Text());
        break;
      default:
        break;
    }
    Take(source, part);
  }

  // Numbers of any size, under checksums that are right. What bytes a page has, and in which group,
  // its giver alone knows.
  void Change(v1::CarryKvPart* part) {
    if (part->has_layers()) {
      part->mutable_layers()->set_first_layer(static_cast<uint32_t>(input_.Number()));
      part->mutable_layers()->set_last_layer(static_cast<uint32_t>(input_.Number()));
    }
    if (part->pages_size() > 0) {
      v1::CarriedPage* const page = part->mutable_pages(
          static_cast<int>(input_.Number() % static_cast<uint64_t>(part->pages_size())));
      switch (input_.Below(4)) {
        case 0:
          page->set_page(static_cast<uint32_t>(input_.Number()));
          break;
        case 1:
          page->set_fingerprint(input_.Number());
          break;
        case 2:
          page->set_offset(input_.Number());
          break;
        default:
          page->mutable_data()->resize(input_.Below(64));
      }
      page->set_crc32c(CarriedPageCrc(layers_, *page));
    }
    for (v1::CarriedSequence& sequence : *part->mutable_sequences()) {
      switch (input_.Below(6)) {
        case 0:
          sequence.set_committed_length(static_cast<uint32_t>(input_.Number()));
          break;
        case 1:
          sequence.mutable_name()->set_generation(input_.Number() >> 1);
          break;
        case 2:
          sequence.mutable_params()->set_rotary_variant(static_cast<uint32_t>(input_.Number()));
          break;
        case 3:
          sequence.add_embedded()->set_position(static_cast<uint32_t>(input_.Number()));
          sequence.mutable_embedded(sequence.embedded_size() - 1)->set_link(input_.Number());
          break;
        case 4:
          sequence.add_tables()->set_first_page(static_cast<uint32_t>(input_.Number()));
          break;
        default:
          if (sequence.tables_size() > 0) {
            sequence.mutable_tables(0)->add_pages(static_cast<uint32_t>(input_.Number()));
            sequence.mutable_tables(0)->set_first_page(static_cast<uint32_t>(input_.Number()));
          }
      }
    }
  }

  void Take(uint32_t source, const v1::CarryKvPart& part) {
    const absl::Status taken = new_.runner(0).TakeKv(source, part);
    STRATA_CHECK(taken.ok() || !ReasonOf(taken).empty());
  }

  // A Truncate that is accepted names tokens whose KV is right: what follows them is the oracle's.
  void Check() {
    Steps steps(&new_);
    std::vector<v1::StepCommand> cuts;
    for (uint64_t number = 1; number <= 2; ++number) {
      cuts.push_back(Truncate(Named(number), ids_[number - 1]));
    }
    const ResultMessage resync = steps.Resync(kEpoch + 1, cuts);
    for (uint64_t number = 1; number <= 2; ++number) {
      if (!ReasonOfCommand(resync, static_cast<int>(number - 1)).empty()) {
        continue;
      }
      std::vector<uint32_t> ids = ids_[number - 1];
      ids.push_back(static_cast<uint32_t>(number));
      const auto length = static_cast<uint32_t>(ids.size());
      v1::StepItem item = Item(Named(number), ids, length - 1, length);
      item.set_sample(false);  // By parameters that nobody vouches for.
      item.set_rows_wanted(v1::ROWS_WANTED_LOGITS);
      const ResultMessage result = steps.Run({item});
      STRATA_CHECK(ReasonOfItem(result).empty());
      STRATA_CHECK(result.payload == HashLogits(new_.options().model, ids).back());
    }
    const ResultMessage empty = steps.Resync(kEpoch + 2, {});
    STRATA_CHECK(FreePages(empty, 0, 0) == 12 && FreePages(empty, 0, 1) == 10);
    const std::vector<uint32_t> fresh = Prompt(20, 3, kVocab);
    const ResultMessage result = steps.Run({Item(Name("new", UINT64_MAX), fresh, 0, 20)});
    // Unless a sequence had the last generation that there is.
    if (ReasonOfItem(result) != "STALE_GENERATION") {
      STRATA_CHECK(TokenOf(result) == ExpectedTokens(new_.options().model, fresh, 1)[0]);
    }
  }

  fuzz::Input& input_;
  Chain old_;
  Chain new_{Options(1)};
  Steps old_steps_;
  LayerRange layers_;  // That the stage gives which is asked.
  std::vector<std::vector<uint32_t>> ids_;
};

}  // namespace
}  // namespace strata

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  strata::fuzz::Input input(data, size);
  strata::CarriedKv(&input).Run();
  return 0;
}
