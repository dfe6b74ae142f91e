// Random steps against token lists: whatever is asked, right or wrong, whole or in slices, every
// token that comes back is the one of the list, and no page is lost.
#include <algorithm>
#include <map>
#include <random>

#include "tests/fuzz/slice_model.h"
#include "tests/worker/runner/chain.h"

namespace strata {
namespace {

using namespace strata::testing;  // NOLINT(google-build-using-namespace)

constexpr uint32_t kMaxLength = 90;
constexpr uint32_t kWindow = 24;
constexpr uint32_t kFuzzLayers = 6;
constexpr char kAny[] = "any";  // For the reason of a command.

class Fuzz {
 public:
  Fuzz(uint32_t seed, uint32_t stages)
      : rng_(seed),
        // Every stage has layers of both groups: what one of them refuses, the first one does.
        chain_(
            {.model = HashModel(kFuzzLayers, {{KvKind::kFull, 0}, {KvKind::kWindow, kWindow}}, 61),
             .stages = stages,
             .pages = {24, 20},
             .max_batch_tokens = 90}),
        steps_(&chain_) {
    steps_.set_commits(false);
  }

  void Round() {
    switch (Draw(20)) {
      case 0:
        return FenceAndResync();
      case 1:
        return ReleaseAll();
      case 2:
        return SendOutOfOrder();
      default:
        return RunStep();
    }
  }

  void ReleaseAll() {
    std::vector<v1::StepCommand> commands;
    for (const auto& [generation, sequence] : held_) {
      commands.push_back(Release(NameOf(generation)));
    }
    held_.clear();
    const ResultMessage result = Send(steps_.Frame({}, commands));
    for (uint32_t s = 0; s < chain_.options().stages; ++s) {
      for (int group = 0; group < 2; ++group) {
        EXPECT_EQ(FreePages(result, static_cast<int>(s), group), chain_.options().pages[group]);
      }
      EXPECT_EQ(chain_.runner(s).stats().sequences, 0u);
    }
  }

  uint64_t tokens_checked() const { return tokens_checked_; }
  uint64_t rejected() const { return rejected_; }
  uint64_t windows_missed() const { return windows_missed_; }
  uint64_t slices() const { return slices_; }

 private:
  struct Held {
    SliceModel model;
    uint32_t retained = 0;   // First position that the window group still has.
    uint64_t safe_from = 0;  // Commits before this step named more than is held now.
    std::map<uint64_t, uint32_t> lengths = {};  // Of all layers, after each step that changed it.
    bool astray = false;                        // Stages hold different parts of it.
  };
  // An item sent, and what is to come of it.
  struct Sent {
    uint64_t generation;
    std::string reason;  // Empty: as the model says, unless pages are short.
    v1::StepItem item = {};
  };

  uint32_t Draw(uint32_t below) { return static_cast<uint32_t>(rng_() % below); }
  // Few ids, many generations.
  static v1::SequenceName NameOf(uint64_t generation) {
    return Name("r" + std::to_string(generation % 3), generation);
  }
  std::vector<uint32_t> Tokens(uint32_t count) { return Prompt(count, rng_(), 61); }

  ResultMessage Send(StepMessage frame) {
    step_ = frame.header.step();
    frame.header.set_committed_step(committed_);
    last_ = frame;
    return steps_.Send(std::move(frame));
  }

  void RunStep() {
    std::vector<v1::StepCommand> commands;
    std::vector<std::string> command_reasons;
    MoveCommit();
    for (uint32_t i = Draw(3); i > 0; --i) {
      command_reasons.push_back(AddCommand(&commands));
    }
    std::vector<v1::StepItem> items;
    std::vector<Sent> sent;
    for (uint32_t i = Draw(4); i > 0; --i) {
      AddItem(&items, &sent);
      if (RowsOf(items) > chain_.options().max_batch_tokens) {
        items.clear();  // Frames that are too large are refused as a whole.
        sent.clear();
      }
    }
    for (auto& [generation, held] : held_) {
      held.model.BeginStep();
    }
    const ResultMessage result = Send(steps_.Frame(items, commands));
    for (size_t i = 0; i < commands.size(); ++i) {
      if (command_reasons[i] != kAny) {
        EXPECT_EQ(ReasonOfCommand(result, static_cast<int>(i)), command_reasons[i])
            << commands[i].ShortDebugString();
      }
    }
    for (size_t i = 0; i < sent.size(); ++i) {
      sent[i].item = std::move(items[i]);
      Check(result.header.items(static_cast<int>(i)), sent[i]);
    }
    CheckHeld();
  }

  void CheckHeld() {
    const uint32_t stages = chain_.options().stages;
    for (uint32_t s = 0; s < stages; ++s) {
      SequenceTable& table = chain_.runner(s).sequences_for_test();
      EXPECT_LE(table.ParkedRows(), chain_.options().max_batch_tokens);
      for (const auto& [generation, held] : held_) {
        if (!held.astray) {
          held.model.CheckHeld(NameOf(generation), kFuzzLayers * s / stages,
                               kFuzzLayers * (s + 1) / stages - 1, &table);
        }
      }
    }
  }

  static uint32_t RowsOf(const std::vector<v1::StepItem>& items) {
    uint32_t rows = 0;
    for (const v1::StepItem& item : items) {
      rows += static_cast<uint32_t>(item.token_ids_size());
    }
    return rows;
  }

  // The next frame will say that up to four steps less than all are committed.
  void MoveCommit() {
    committed_ = std::max(committed_, step_ - std::min<uint64_t>(step_, Draw(4)));
    for (auto& [generation, held] : held_) {
      if (const auto after = held.lengths.upper_bound(committed_); after != held.lengths.begin()) {
        FreeBehind(std::prev(after)->second, &held);
      }
    }
  }

  uint64_t Pick() {
    auto entry = held_.begin();
    std::advance(entry, Draw(static_cast<uint32_t>(held_.size())));
    return entry->first;
  }

  static bool WindowIsHeld(const Held& held, uint32_t length) {
    return held.retained <= (length + 1 > kWindow ? length + 1 - kWindow : 0);
  }
  static void FreeBehind(uint32_t committed_length, Held* held) {
    const uint32_t seen = committed_length + 1 > kWindow ? committed_length + 1 - kWindow : 0;
    held->retained = std::max(held->retained, seen / kPageTokens * kPageTokens);
  }

  // Adds a command and does to the lists what it should do; returns the expected reason.
  std::string AddCommand(std::vector<v1::StepCommand>* commands) {
    if (held_.empty() || Draw(6) == 0) {
      commands->push_back(Release(NameOf(newest_ + 100)));
      return "SEQUENCE_NOT_FOUND";
    }
    const uint64_t generation = Pick();
    Held& held = held_[generation];
    if (held.astray || Draw(4) == 0) {
      const bool astray = held.astray;  // A stage may not have it.
      commands->push_back(Release(NameOf(generation)));
      held_.erase(generation);
      return astray ? kAny : "";
    }
    const uint32_t kind = 1 + Draw(3);
    const uint32_t length = Draw(4) == 0 ? held.model.length() : held.model.computed();
    const uint32_t cut = length - std::min(length, Draw(Draw(2) == 0 ? 40 : 5));
    std::vector<uint32_t> prefix(held.model.ids().begin(), held.model.ids().begin() + cut);
    const bool wrong = cut > 0 && Draw(8) == 0;
    if (wrong) {
      prefix[Draw(cut)] ^= 1;
    }
    const uint64_t fork = newest_ + 1 + Draw(3);
    commands->push_back(kind == 1 ? Truncate(NameOf(generation), prefix)
                                  : Fork(NameOf(generation), NameOf(fork), prefix));
    if (std::string reason = held.model.JudgeCut(cut, FingerprintOf(prefix)); !reason.empty()) {
      EXPECT_TRUE(wrong || cut > held.model.computed());
      return reason;
    }
    if (!WindowIsHeld(held, cut)) {
      ++windows_missed_;
      return "WINDOW_NOT_RETAINED";
    }
    if (kind == 1) {
      held.model.Truncate(cut);
      held.safe_from = step_ + 1;
      for (auto& [step, after] : held.lengths) {
        after = std::min(after, cut);
      }
    } else {
      newest_ = fork;
      created_ = fork;
      Held forked = {held.model, held.retained, 0, {{step_ + 1, cut}}};
      forked.model.Truncate(cut);
      held_[fork] = std::move(forked);
    }
    return "";
  }

  bool IsSent(const std::vector<Sent>& sent, uint64_t generation) {
    return std::any_of(sent.begin(), sent.end(),
                       [&](const Sent& s) { return s.generation == generation; });
  }

  void AddItem(std::vector<v1::StepItem>* items, std::vector<Sent>* sent) {
    if (held_.empty() || Draw(4) == 0) {
      return AddCreation(items, sent);
    }
    const uint64_t generation = Pick();
    if (IsSent(*sent, generation)) {
      return;
    }
    const Held& held = held_[generation];
    if (held.astray) {
      return;
    }
    if (!held.model.parts().empty() || Draw(4) == 0) {
      return AddSlices(generation, held.model, items, sent);
    }
    const uint32_t length = held.model.length();
    const uint32_t rows = std::min(1 + Draw(Draw(3) == 0 ? 30 : 2), kMaxLength - length);
    if (rows == 0) {
      return;
    }
    std::vector<uint32_t> ids = held.model.ids();
    const auto more = Tokens(rows);
    ids.insert(ids.end(), more.begin(), more.end());
    Sent entry = {generation, ""};
    v1::StepItem item = Item(NameOf(generation), ids, length, length + rows);
    switch (Draw(10)) {
      case 0:
        item.set_position(length + 1);
        entry.reason = "POSITION_MISMATCH";
        break;
      case 1:
        if (length > 0) {
          item.set_position(Draw(length));
          entry.reason = "POSITION_MISMATCH";
        }
        break;
      case 2:
        item.set_fingerprint(item.fingerprint() ^ 1);
        entry.reason = "FINGERPRINT_MISMATCH";
        break;
      default:
        break;
    }
    items->push_back(item);
    sent->push_back(entry);
  }

  uint32_t DrawEnd(uint32_t from) {
    const uint32_t end = from + 1 + Draw(kFuzzLayers + 1 - from);
    return end <= kFuzzLayers ? end : SliceModel::kToTheEnd;
  }

  // The next slices of what is begun, and more tokens; one in four of them is not as it should be.
  void AddSlices(uint64_t generation, SliceModel plan, std::vector<v1::StepItem>* items,
                 std::vector<Sent>* sent) {
    plan.BeginStep();
    const auto add = [&](v1::StepItem item) {
      item.set_sample(item.end_layer() == 0);
      plan.Take(item);
      if (Draw(4) == 0) {
        ChangeSlice(&item);
      }
      items->push_back(std::move(item));
      sent->push_back({generation, ""});
    };
    for (size_t i = 0; i < plan.parts().size();) {
      const SlicePart part = plan.parts()[i];
      const uint32_t most = i == 0 ? SliceModel::kToTheEnd : plan.parts()[i - 1].next;
      const uint32_t end = std::min(most, DrawEnd(part.next));
      const size_t parts = plan.parts().size();
      if (end > part.next && Draw(4) > 0) {
        add(plan.Continue(NameOf(generation), part, end));
      }
      i += plan.parts().size() == parts ? 1 : 0;
    }
    const uint32_t room = kMaxLength - std::min(kMaxLength, plan.length());
    if (room > 0 && plan.parts().size() < 4) {
      const uint32_t most = plan.parts().empty() ? SliceModel::kToTheEnd : plan.parts().back().next;
      const uint32_t end = std::min({most, kFuzzLayers, DrawEnd(0)});
      add(plan.Begin(NameOf(generation), Tokens(1 + Draw(std::min(room, 20u))), end));
    }
  }

  void ChangeSlice(v1::StepItem* item) {
    switch (Draw(6)) {
      case 0:
        return item->set_from_layer(Draw(kFuzzLayers + 2));
      case 1:
        return item->set_end_layer(1 + Draw(kFuzzLayers + 1));
      case 2:
        return item->set_position(Draw(kMaxLength));
      case 3:
        return item->set_token_ids(0, (item->token_ids(0) + 1) % 61);
      case 4:
        return item->add_token_ids(Draw(61));
      default:
        return item->set_fingerprint(item->fingerprint() ^ 1);
    }
  }

  void AddCreation(std::vector<v1::StepItem>* items, std::vector<Sent>* sent) {
    const auto ids = Tokens(1 + Draw(40));
    const auto length = static_cast<uint32_t>(ids.size());
    Sent entry = {newest_ + 1 + Draw(3), ""};
    uint32_t position = 0;
    if (Draw(6) == 0 && created_ > 0) {
      entry.generation = 1 + Draw(static_cast<uint32_t>(created_));
      entry.reason = "STALE_GENERATION";
      if (held_.contains(entry.generation) || IsSent(*sent, entry.generation)) {
        return;
      }
    } else if (Draw(6) == 0 && length > 1) {
      position = 1;
      entry.reason = "SEQUENCE_NOT_FOUND";
    }
    items->push_back(Item(NameOf(entry.generation), ids, position, length));
    if (Draw(3) == 0) {
      items->back().set_end_layer(1 + Draw(kFuzzLayers));
      items->back().set_sample(false);
    }
    if (entry.reason.empty()) {
      newest_ = entry.generation;
    }
    sent->push_back(entry);
  }

  void Check(const v1::ItemResult& result, const Sent& sent) {
    if (!sent.reason.empty()) {
      if (result.error().reason() != "PARKED_ROWS") {  // What is looked at first.
        EXPECT_EQ(result.error().reason(), sent.reason);
      }
      ++rejected_;
      return;
    }
    auto entry = held_.find(sent.generation);
    const bool found = entry != held_.end();
    if (found && entry->second.astray) {
      return;
    }
    Held held = found ? entry->second : Held{SliceModel(kFuzzLayers, chain_.options().context)};
    const std::string expected = held.model.Judge(sent.item);
    const std::string& reason = result.error().reason();
    if (result.has_error()) {
      // The lists do not know which pages are shared, or whose rows are kept where.
      EXPECT_TRUE(reason == expected || reason == "KV_PAGES" || reason == "PARKED_ROWS")
          << reason << ": " << result.error().message() << ", not " << expected << " of "
          << sent.item.ShortDebugString();
      ++rejected_;
      if (result.error_stage() > 0) {
        held.astray = true;  // The stages before have taken it.
        created_ = std::max(created_, sent.generation);
        held_[sent.generation] = std::move(held);
      }
      return;
    }
    EXPECT_EQ(expected, "") << sent.item.ShortDebugString();
    if (!expected.empty()) {
      return;
    }
    created_ = std::max(created_, sent.generation);
    held.model.Take(sent.item);
    if (sent.item.end_layer() == 0) {
      const uint32_t end = sent.item.position() + static_cast<uint32_t>(sent.item.token_ids_size());
      held.lengths[step_] = end;
      EXPECT_EQ(result.tokens_size(), 1);
      EXPECT_EQ(
          result.tokens(0).token_id(),
          Argmax(
              HashLogits(chain_.options().model, std::span(held.model.ids()).first(end)).back()));
      ++tokens_checked_;
    } else {
      EXPECT_EQ(result.tokens_size(), 0);
      ++slices_;
    }
    held_[sent.generation] = std::move(held);
  }

  void FenceAndResync() {
    // What the coordinator has results of: at least what it said so far.
    const uint64_t committed = committed_ + Draw(static_cast<uint32_t>(step_ - committed_) + 1);
    std::vector<v1::StepCommand> truncates;
    std::map<uint64_t, Held> kept;
    for (auto& [generation, held] : held_) {
      const auto after = held.lengths.upper_bound(committed);
      if (held.astray || held.safe_from > committed || after == held.lengths.begin() ||
          !WindowIsHeld(held, std::prev(after)->second) || Draw(5) == 0) {
        continue;  // Released, as the frame does not name it.
      }
      held.model.Truncate(std::prev(after)->second);
      FreeBehind(std::prev(after)->second, &held);
      truncates.push_back(Truncate(NameOf(generation), held.model.ids()));
      kept[generation] = {held.model, held.retained, 0, {{0, held.model.length()}}};
    }
    held_ = kept;
    chain_.Fence(++epoch_);
    steps_ = Steps(&chain_, epoch_);
    steps_.set_commits(false);
    committed_ = 0;
    StepMessage frame = steps_.Frame({}, truncates);
    frame.header.set_resync(true);
    const ResultMessage result = Send(frame);
    for (size_t i = 0; i < truncates.size(); ++i) {
      EXPECT_EQ(ReasonOfCommand(result, static_cast<int>(i)), "");
    }
    EXPECT_EQ(chain_.runner(0).stats().sequences, held_.size());
  }

  // Frames that must do nothing: seen, ahead, of other epochs.
  void SendOutOfOrder() {
    if (step_ == 0) {
      return;
    }
    EXPECT_EQ(chain_.Run(last_).status().message(), "discarded");
    StepMessage frame = last_;
    frame.header.set_step(step_ + 2);
    EXPECT_EQ(ReasonOf(chain_.Run(frame).status()), "STEP_GAP");
    frame.header.set_epoch(epoch_ + 1);
    EXPECT_EQ(ReasonOf(chain_.Run(frame).status()), "EPOCH_NOT_LOADED");
    frame.header.set_epoch(epoch_ - 1);
    EXPECT_EQ(chain_.Run(frame).status().message(), "discarded");
  }

  std::mt19937 rng_;
  Chain chain_;
  Steps steps_;
  uint64_t epoch_ = kEpoch;
  uint64_t step_ = 0;
  uint64_t committed_ = 0;
  uint64_t newest_ = 0;            // Generation ever named for a creation,
  uint64_t created_ = 0;           // and created.
  std::map<uint64_t, Held> held_;  // By generation.
  StepMessage last_;
  uint64_t tokens_checked_ = 0;
  uint64_t rejected_ = 0;
  uint64_t windows_missed_ = 0;
  uint64_t slices_ = 0;
};

TEST(RunnerFuzz, RandomStepsNeverGiveATokenOfAnotherState) {
  uint64_t windows_missed = 0;
  uint64_t slices = 0;
  for (uint32_t seed = 1; seed <= 40; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Fuzz fuzz(seed, 1 + seed % 3);
    for (int round = 0; round < 300; ++round) {
      fuzz.Round();
      if (::testing::Test::HasFailure()) {
        FAIL() << "round " << round;
      }
    }
    fuzz.ReleaseAll();
    EXPECT_GT(fuzz.tokens_checked(), 100u);
    EXPECT_GT(fuzz.rejected(), 20u);
    windows_missed += fuzz.windows_missed();
    slices += fuzz.slices();
  }
  EXPECT_GT(windows_missed, 10u);
  EXPECT_GT(slices, 4000u);
}

}  // namespace
}  // namespace strata
