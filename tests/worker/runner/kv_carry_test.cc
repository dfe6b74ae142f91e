// KV that goes from one stage to another that takes its place: it goes on there, and nothing of it
// is believed.
#include <algorithm>
#include <functional>
#include <random>

#include "tests/worker/runner/chain.h"
#include "worker/runner/carried_page.h"

namespace strata {
namespace {

using namespace strata::testing;  // NOLINT(google-build-using-namespace)

using Parts = std::vector<v1::CarryKvPart>;

ChainOptions Options() {
  return {.model = HashModel(4, {{KvKind::kFull, 0}, {KvKind::kWindow, 24}}, 61),
          .pages = {24, 20},
          .context = 200};
}

class KvCarry : public ::testing::Test {
 protected:
  // What the old stage answers in a round.
  absl::StatusOr<Parts> Give(uint32_t round, bool final) {
    v1::CarryKvRequest request = new_.runner(0).DescribeKv();
    request.set_round(round);
    request.set_final(final);
    Parts all;
    for (bool begins = true;; begins = false) {
      auto parts = old_.runner(0).GiveKv(request, begins);
      if (!parts.ok() || parts->empty()) {
        return parts.ok() ? all : std::move(parts);
      }
      std::move(parts->begin(), parts->end(), std::back_inserter(all));
    }
  }
  absl::Status Take(const Parts& parts) {
    for (const v1::CarryKvPart& part : parts) {
      if (absl::Status status = new_.runner(0).TakeKv(0, part); !status.ok()) {
        return status;
      }
    }
    return absl::OkStatus();
  }
  void Carry(uint32_t round, bool final) {
    const auto parts = Give(round, final);
    ASSERT_TRUE(parts.ok()) << parts.status();
    const absl::Status taken = Take(*parts);
    ASSERT_TRUE(taken.ok()) << taken;
  }
  // A prompt and what follows; all but the last token are computed.
  std::vector<uint32_t> Compute(const v1::SequenceName& name, uint32_t prompt, uint32_t salt) {
    std::vector<uint32_t> ids = Prompt(prompt, salt, 61);
    for (const uint32_t id : Generate(&old_steps_, name, ids, 32, 3)) {
      ids.push_back(id);
    }
    return ids;
  }
  static std::span<const uint32_t> Computed(const std::vector<uint32_t>& ids) {
    return std::span(ids).first(ids.size() - 1);
  }
  // The new stage computes the last of `ids`.
  void ExpectGoesOn(const v1::SequenceName& name, const std::vector<uint32_t>& ids) {
    const auto length = static_cast<uint32_t>(ids.size());
    const ResultMessage result = new_steps_.Run({Item(name, ids, length - 1, length)});
    EXPECT_EQ(TokenOf(result), ExpectedTokens(Options().model, ids, 1)[0]);
  }

  Chain old_{Options()};
  Chain new_{Options()};
  Steps old_steps_{&old_};
  Steps new_steps_{&new_};
};

TEST_F(KvCarry, SequencesGoOnAtTheStageThatTookThemOver) {
  const std::vector<uint32_t> before = Compute(Name("a", 1), 50, 1);
  Carry(0, false);
  const std::vector<uint32_t> after = Compute(Name("b", 2), 20, 2);
  Carry(1, false);
  Carry(0, true);
  EXPECT_EQ(new_.runner(0).taken_kv().sequences, 2u);
  const auto cut = {Truncate(Name("a", 1), Computed(before)),
                    Truncate(Name("b", 2), Computed(after))};
  const ResultMessage resync = new_steps_.Resync(kEpoch + 1, cut);
  EXPECT_EQ(ReasonOfCommand(resync, 0), "");
  EXPECT_EQ(ReasonOfCommand(resync, 1), "");
  const ResultMessage same = old_steps_.Resync(kEpoch + 1, cut);
  EXPECT_EQ(FreePages(resync, 0, 0), FreePages(same, 0, 0));
  EXPECT_EQ(FreePages(resync, 0, 1), FreePages(same, 0, 1)) << "behind the window, too";
  ExpectGoesOn(Name("a", 1), before);
  ExpectGoesOn(Name("b", 2), after);
}

TEST_F(KvCarry, ARoundHasWhatIsNewAlone) {
  Compute(Name("a", 1), 50, 1);
  Carry(0, false);
  const uint64_t bytes = new_.runner(0).taken_kv().bytes;
  EXPECT_GT(bytes, 0u);
  EXPECT_EQ(Give(1, false)->size(), 1u) << "of which layers it is, and no page";
  Compute(Name("b", 2), 32, 2);
  Carry(2, false);
  EXPECT_GT(new_.runner(0).taken_kv().bytes, bytes);
  const auto rest = Give(0, true);
  ASSERT_TRUE(rest.ok());
  int pages = 0;
  for (const v1::CarryKvPart& part : *rest) {
    pages += part.pages_size();
  }
  EXPECT_EQ(pages, 4) << "the last of each sequence and group, which are filled in part";
  EXPECT_GT(Give(0, false)->size(), 1u) << "another stage asks from the beginning";
}

TEST_F(KvCarry, PagesOfOtherTokensAreGivenAnew) {
  const std::vector<uint32_t> ids = Compute(Name("a", 1), 40, 1);
  Carry(0, false);
  old_steps_.Run({}, {Release(Name("a", 1))});
  const std::vector<uint32_t> other = Compute(Name("b", 2), 40, 2);
  Carry(1, true);
  EXPECT_EQ(ReasonOfCommand(new_steps_.Resync(kEpoch + 1, {Truncate(Name("b", 2), Computed(other)),
                                                           Truncate(Name("a", 1), Computed(ids))}),
                            1),
            "SEQUENCE_NOT_FOUND");
  ExpectGoesOn(Name("b", 2), other);
}

TEST_F(KvCarry, SequencesShareTheirPagesAsBefore) {
  Chain old({.pages = {24}});
  Chain fresh({.pages = {24}});
  Steps steps(&old);
  const std::vector<uint32_t> ids = Prompt(40, 1);
  steps.Run({Item(Name("a", 1), ids, 0, 40)});
  const std::vector<uint32_t> prefix(ids.begin(), ids.begin() + 32);
  steps.Run({}, {Fork(Name("a", 1), Name("b", 2), prefix)});
  steps.Run({}, {Fork(Name("a", 1), Name("c", 3), std::span(ids).first(36))});
  v1::CarryKvRequest request = fresh.runner(0).DescribeKv();
  request.set_final(true);
  const auto parts = old.runner(0).GiveKv(request, true);
  ASSERT_TRUE(parts.ok()) << parts.status();
  for (const v1::CarryKvPart& part : *parts) {
    EXPECT_TRUE(fresh.runner(0).TakeKv(0, part).ok());
  }
  Steps fresh_steps(&fresh);
  const ResultMessage resync =
      fresh_steps.Resync(kEpoch + 1, {Truncate(Name("a", 1), ids), Truncate(Name("b", 2), prefix),
                                      Truncate(Name("c", 3), std::span(ids).first(36))});
  EXPECT_EQ(ReasonOfCommand(resync, 1), "");
  EXPECT_EQ(FreePages(resync), 24u - 2);
  EXPECT_EQ(ReasonOfCommand(resync, 0), "SEQUENCE_NOT_FOUND") << "its last page is shared";
  EXPECT_EQ(ReasonOfCommand(resync, 2), "SEQUENCE_NOT_FOUND");
}

TEST_F(KvCarry, AnotherKindOfStageIsRefused) {
  Compute(Name("a", 1), 20, 1);
  v1::CarryKvRequest request = new_.runner(0).DescribeKv();
  const auto refused = [&](const std::function<void(v1::CarryKvRequest*)>& edit) {
    v1::CarryKvRequest other = request;
    edit(&other);
    return ReasonOf(old_.runner(0).GiveKv(other, true).status());
  };
  EXPECT_EQ(refused([](auto*) {}), "");
  EXPECT_EQ(refused([](auto* r) { r->set_first_layer(1); }), "") << "it gives some of its layers";
  EXPECT_EQ(refused([](auto* r) {
              r->set_first_layer(4);
              r->set_last_layer(9);
            }),
            "KV_UNLIKE");
  EXPECT_EQ(refused([](auto* r) { r->set_first_layer(9); }), "KV_UNLIKE");
  EXPECT_EQ(refused([](auto* r) { r->set_numerics_class("hash-2"); }), "KV_UNLIKE");
}

TEST_F(KvCarry, WhatDoesNotFitTogetherIsRefusedAndItsPagesAreFree) {
  const std::vector<uint32_t> ids = Compute(Name("a", 1), 50, 1);
  const auto given = Give(0, true);
  ASSERT_TRUE(given.ok());
  v1::CarryKvPart part;
  for (const v1::CarryKvPart& one : *given) {
    part.MergeFrom(one);
  }
  using Edit = std::function<void(v1::CarryKvPart*)>;
  const auto page = [](v1::CarryKvPart* p, int i) { return p->mutable_pages(i); };
  const auto sequence = [](v1::CarryKvPart* p) { return p->mutable_sequences(0); };
  const std::vector<std::pair<std::string, Edit>> edits = {
      {"a flipped bit", [&](auto* p) { (*page(p, 0)->mutable_data())[5] ^= 1; }},
      {"a cut page", [&](auto* p) { page(p, 0)->mutable_data()->pop_back(); }},
      {"a piece too late", [&](auto* p) { page(p, 0)->set_offset(8); }},
      {"another group", [&](auto* p) { page(p, 0)->set_group(7); }},
      {"one page for another",
       [&](auto* p) {
         const uint32_t name = page(p, 0)->page();
         page(p, 0)->set_page(page(p, 1)->page());
         page(p, 1)->set_page(name);
         for (const int i : {0, 1}) {
           page(p, i)->set_crc32c(CarriedPageCrc({0, 3}, p->pages(i)));
         }
       }},
      {"another fingerprint under the old checksum",
       [&](auto* p) { page(p, 0)->set_fingerprint(page(p, 1)->fingerprint()); }},
      {"a page that is missing", [&](auto* p) { p->mutable_pages()->DeleteSubrange(1, 1); }},
      {"another token", [&](auto* p) { sequence(p)->set_token_ids(3, 60 - ids[3]); }},
      {"a token that there is not", [&](auto* p) { sequence(p)->set_token_ids(3, 61); }},
      {"a token less", [&](auto* p) { sequence(p)->mutable_token_ids()->RemoveLast(); }},
      {"no tokens", [&](auto* p) { sequence(p)->clear_token_ids(); }},
      {"another fingerprint", [&](auto* p) { sequence(p)->set_fingerprint(1); }},
      {"more committed than there is", [&](auto* p) { sequence(p)->set_committed_length(99); }},
      {"no name", [&](auto* p) { sequence(p)->clear_name(); }},
      {"no table", [&](auto* p) { sequence(p)->mutable_tables()->RemoveLast(); }},
      {"a table that begins late",
       [&](auto* p) { sequence(p)->mutable_tables(0)->set_first_page(1); }},
      {"a page less",
       [&](auto* p) { sequence(p)->mutable_tables(1)->mutable_pages()->RemoveLast(); }},
      {"a page that was not given",
       [&](auto* p) { sequence(p)->mutable_tables(0)->set_pages(0, 77); }},
      {"an embedding behind the end",
       [&](auto* p) {
         v1::CarriedLink* const link = sequence(p)->add_embedded();
         link->set_position(200);
         link->set_link(kEmbeddingLinkBit);
       }},
      {"the same again", [](auto* p) { *p->add_sequences() = p->sequences(0); }},
  };
  uint64_t epoch = kEpoch;
  for (const auto& [what, edit] : edits) {
    SCOPED_TRACE(what);
    v1::CarryKvPart wrong = part;
    edit(&wrong);
    EXPECT_FALSE(Take({wrong}).ok());
    const ResultMessage resync = new_steps_.Resync(++epoch, {});
    EXPECT_EQ(FreePages(resync, 0, 0), 24u);
    EXPECT_EQ(FreePages(resync, 0, 1), 20u);
  }
  EXPECT_TRUE(Take({part}).ok());
  new_steps_.Resync(++epoch, {Truncate(Name("a", 1), Computed(ids))});
  ExpectGoesOn(Name("a", 1), ids);
}

TEST_F(KvCarry, WhatHasNoRoomIsLeftOutAndTheRestGoesOn) {
  Chain small({.model = Options().model, .pages = {3, 3}, .context = 200});
  const std::vector<uint32_t> fits = Compute(Name("a", 1), 20, 1);
  const std::vector<uint32_t> not_any_more = Compute(Name("b", 2), 60, 1);
  const auto given = Give(0, true);
  for (const v1::CarryKvPart& part : *given) {
    const absl::Status taken = small.runner(0).TakeKv(0, part);
    EXPECT_TRUE(taken.ok()) << taken;
  }
  EXPECT_EQ(small.runner(0).taken_kv().sequences, 1u);
  Steps steps(&small);
  const ResultMessage resync = steps.Resync(
      kEpoch + 1,
      {Truncate(Name("a", 1), Computed(fits)), Truncate(Name("b", 2), Computed(not_any_more))});
  EXPECT_EQ(ReasonOfCommand(resync, 0), "");
  EXPECT_EQ(ReasonOfCommand(resync, 1), "SEQUENCE_NOT_FOUND");
}

// Layers that go to other cuts: from the stages of `from` to those of `to`.
class KvOfOtherCuts : public ::testing::Test {
 protected:
  static ChainOptions Of(uint32_t stages) {
    return {.model = HashModel(6), .stages = stages, .pages = {24}, .context = 200};
  }
  struct Cuts {
    explicit Cuts(uint32_t stages) : chain(Of(stages)), steps(&chain), stages(stages) {}
    Chain chain;
    Steps steps;
    uint32_t stages;
  };

  // A round at each stage of `to`. `edit`: of the parts that the last of its sources gives.
  static void Carry(Cuts* from, Cuts* to, uint32_t round, bool final,
                    const std::function<void(v1::CarryKvPart*)>& edit = nullptr) {
    for (uint32_t s = 0; s < to->stages; ++s) {
      ShardRunner& taker = to->chain.runner(s);
      std::vector<uint32_t> sources;
      v1::CarryKvRequest request = taker.DescribeKv();
      for (uint32_t f = 0; f < from->stages; ++f) {
        const v1::CarryKvRequest own = from->chain.runner(f).DescribeKv();
        if (own.first_layer() <= request.last_layer() &&
            request.first_layer() <= own.last_layer()) {
          sources.push_back(f);
        }
      }
      const uint32_t main = taker.taken_kv().main;
      for (const uint32_t source : AskedInTurn(sources.size(), !final, main)) {
        request.set_round(round);
        request.set_final(final);
        request.set_pages_only(final && source != main);
        for (bool begins = true;; begins = false) {
          auto parts = from->chain.runner(sources[source]).GiveKv(request, begins);
          ASSERT_TRUE(parts.ok()) << parts.status();
          if (parts->empty()) {
            break;
          }
          for (v1::CarryKvPart& part : *parts) {
            EXPECT_EQ(part.sequences_size() > 0 && request.pages_only(), false);
            if (edit != nullptr && source + 1 == sources.size()) {
              edit(&part);
            }
            const absl::Status taken = taker.TakeKv(source, part);
            ASSERT_TRUE(taken.ok()) << taken;
          }
        }
      }
      EXPECT_TRUE(taker.taken_kv().covers);
    }
  }
  static std::vector<uint32_t> Compute(Cuts* on, const v1::SequenceName& name, uint32_t prompt,
                                       uint32_t salt) {
    std::vector<uint32_t> ids = Prompt(prompt, salt);
    for (const uint32_t id : Generate(&on->steps, name, ids, 32, 3)) {
      ids.push_back(id);
    }
    return ids;
  }
  static std::span<const uint32_t> Computed(const std::vector<uint32_t>& ids) {
    return std::span(ids).first(ids.size() - 1);
  }
};

TEST_F(KvOfOtherCuts, LayersComeFromWhicheverStageHasThem) {
  for (const auto& [before, after] : std::vector<std::pair<uint32_t, uint32_t>>(
           {{1, 2}, {2, 1}, {2, 3}, {3, 2}, {1, 6}, {6, 1}, {3, 6}})) {
    SCOPED_TRACE(std::to_string(before) + " stages become " + std::to_string(after));
    Cuts from(before);
    Cuts to(after);
    const std::vector<uint32_t> a = Compute(&from, Name("a", 1), 50, 1);
    Carry(&from, &to, 0, false);
    const std::vector<uint32_t> b = Compute(&from, Name("b", 2), 20, 2);
    from.steps.Run({}, {Fork(Name("a", 1), Name("c", 3), std::span(a).first(32))});
    Carry(&from, &to, 1, false);
    Carry(&from, &to, 0, true);
    const std::vector<v1::StepCommand> cut = {Truncate(Name("a", 1), Computed(a)),
                                              Truncate(Name("b", 2), Computed(b)),
                                              Truncate(Name("c", 3), std::span(a).first(32))};
    const ResultMessage resync = to.steps.Resync(kEpoch + 1, cut);
    const ResultMessage same = from.steps.Resync(kEpoch + 1, cut);
    for (int i = 0; i < 3; ++i) {
      EXPECT_EQ(ReasonOfCommand(resync, i), "") << i;
    }
    for (uint32_t s = 0; s < after; ++s) {
      EXPECT_EQ(FreePages(resync, s, 0), FreePages(same, 0, 0)) << "shared as before";
    }
    for (const auto& [name, ids] : {std::pair(Name("a", 1), a), std::pair(Name("b", 2), b)}) {
      const auto length = static_cast<uint32_t>(ids.size());
      const ResultMessage result = to.steps.Run({Item(name, ids, length - 1, length)});
      EXPECT_EQ(TokenOf(result), ExpectedTokens(HashModel(6), ids, 1)[0]);
    }
  }
}

TEST_F(KvOfOtherCuts, SequencesOfWhichSomeLayersLackAreComputedAgain) {
  Cuts from(2);
  Cuts to(1);
  const std::vector<uint32_t> a = Compute(&from, Name("a", 1), 40, 1);
  Carry(&from, &to, 0, false);
  const std::vector<uint32_t> b = Compute(&from, Name("b", 2), 40, 2);
  // The second stage keeps a page of "b" to itself.
  bool kept = false;
  Carry(&from, &to, 0, true, [&kept](v1::CarryKvPart* part) {
    if (!kept && part->pages_size() > 1) {
      part->mutable_pages()->RemoveLast();
      kept = true;
    }
  });
  ASSERT_TRUE(kept);
  EXPECT_EQ(to.chain.runner(0).taken_kv().sequences, 1u);
  const ResultMessage resync = to.steps.Resync(
      kEpoch + 1, {Truncate(Name("a", 1), Computed(a)), Truncate(Name("b", 2), Computed(b))});
  EXPECT_EQ(ReasonOfCommand(resync, 0), "");
  EXPECT_EQ(ReasonOfCommand(resync, 1), "SEQUENCE_NOT_FOUND");
}

TEST_F(KvOfOtherCuts, StagesThatDoNotFitTogetherAreRefused) {
  Cuts from(2);
  Cuts to(1);
  Compute(&from, Name("a", 1), 40, 1);
  ShardRunner& taker = to.chain.runner(0);
  const auto head = [&](uint32_t first, uint32_t last, uint64_t bytes) {
    v1::CarryKvPart part;
    part.mutable_layers()->set_first_layer(first);
    part.mutable_layers()->set_last_layer(last);
    part.mutable_layers()->add_page_bytes(bytes);
    return part;
  };
  const auto parts = from.chain.runner(0).GiveKv(taker.DescribeKv(), true);
  ASSERT_TRUE(parts.ok());
  const uint64_t bytes = parts->front().layers().page_bytes(0);
  EXPECT_FALSE(taker.TakeKv(0, parts->at(1)).ok()) << "of unknown layers";
  EXPECT_FALSE(taker.TakeKv(0, head(0, 2, bytes + 1)).ok());
  EXPECT_FALSE(taker.TakeKv(0, head(0, 6, bytes)).ok()) << "layers that it has not";
  EXPECT_FALSE(taker.TakeKv(0, head(2, 1, bytes)).ok());
  EXPECT_FALSE(taker.TakeKv(64, parts->front()).ok());
  EXPECT_TRUE(taker.TakeKv(0, parts->front()).ok());
  EXPECT_FALSE(taker.taken_kv().covers) << "of half of the layers alone";
  EXPECT_FALSE(taker.TakeKv(0, head(0, 1, bytes / 3 * 2)).ok()) << "other layers than before";
  EXPECT_FALSE(taker.TakeKv(1, head(2, 5, bytes / 3 * 4)).ok()) << "a layer that the first gives";
  EXPECT_TRUE(taker.TakeKv(1, head(3, 5, bytes)).ok());
  EXPECT_TRUE(taker.taken_kv().covers);
}

TEST_F(KvCarry, BytesOfAnyKindLeaveNothingBehind) {
  const std::vector<uint32_t> ids = Compute(Name("a", 1), 40, 1);
  const auto given = Give(0, true);
  std::string bytes;
  for (const v1::CarryKvPart& part : *given) {
    bytes += part.SerializeAsString();  // As one message.
  }
  std::mt19937 random(1);
  uint64_t epoch = kEpoch;
  for (int i = 0; i < 2000; ++i) {
    std::string wrong = bytes;
    for (uint32_t edits = 1 + random() % 3; edits > 0; --edits) {
      wrong[random() % wrong.size()] = static_cast<char>(random());
    }
    v1::CarryKvPart part;
    if (part.ParseFromString(wrong) && new_.runner(0).TakeKv(0, part).ok()) {
      // It may have been taken; then it is what it says.
      new_steps_.Resync(++epoch, {Truncate(Name("a", 1), Computed(ids))});
    }
    const ResultMessage resync = new_steps_.Resync(++epoch, {});
    ASSERT_EQ(FreePages(resync, 0, 0), 24u);
    ASSERT_EQ(FreePages(resync, 0, 1), 20u);
  }
}

}  // namespace
}  // namespace strata
