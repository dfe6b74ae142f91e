#include "worker/weights/sourced_blobs.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "common/digest.h"
#include "common/status.h"
#include "worker/weights/blob_fetcher.h"

namespace strata {
namespace {

using std::chrono::milliseconds;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

// A coordinator that knows who has the blob, and workers that give it as they are told to.
class FakeSources : public WeightSources {
 public:
  enum class Manner { kGives, kEnds, kHasNot, kLies, kBreaks, kSlow, kComing, kStuck, kDribbles };

  absl::Status FromCoordinator(const std::string& sha256, uint64_t offset,
                               const std::vector<std::string>& not_from,
                               std::vector<WeightSource>* sources, const ChunkFn& sink,
                               Cancellation*) override {
    if (sources != nullptr) {
      for (const auto& [node, manner] : workers) {
        if (std::find(not_from.begin(), not_from.end(), node) == not_from.end()) {
          sources->push_back({node, 1, node + ":1"});
        }
      }
      if (!sources->empty()) return absl::OkStatus();
    }
    from_coordinator += bytes.size() - offset;
    return sink(std::string_view(bytes).substr(offset));
  }

  absl::Status FromWorker(const WeightSource& source, const std::string& sha256, uint64_t offset,
                          milliseconds timeout, const ChunkFn& sink, Cancellation*) override {
    asked.push_back(source.node);
    const Manner manner = workers.at(source.node);
    const std::string_view rest = std::string_view(bytes).substr(offset);
    switch (manner) {
      case Manner::kGives:
        return sink(rest);
      case Manner::kEnds:
        return absl::OkStatus();
      case Manner::kHasNot:
        return Error(absl::StatusCode::kNotFound, "BLOB_NOT_CACHED", "it is not here");
      case Manner::kLies: {
        std::string wrong(rest);
        wrong.back() ^= 1;
        return sink(wrong);
      }
      case Manner::kBreaks:
        RETURN_IF_ERROR(sink(rest.substr(0, rest.size() / 2)));
        return Error(absl::StatusCode::kUnavailable, "GONE", "the connection broke");
      case Manner::kSlow:
        RETURN_IF_ERROR(sink(rest.substr(0, 1)));
        return Error(absl::StatusCode::kDeadlineExceeded, "SLOW", "it takes long");
      case Manner::kComing:
      case Manner::kStuck:
        if (manner == Manner::kComing && ++looks == 5) return sink(rest);
        return Error(absl::StatusCode::kUnavailable, "BLOB_ON_ITS_WAY", "it is on its way")
            .Fact("bytes", manner == Manner::kComing ? std::to_string(looks) : "7");
      case Manner::kDribbles:
        there += step;
        return Error(absl::StatusCode::kUnavailable, "BLOB_ON_ITS_WAY", "it is on its way")
            .Fact("bytes", std::to_string(there));
    }
    return absl::OkStatus();
  }

  std::string bytes = "the weights of a layer";
  std::map<std::string, Manner> workers;
  std::vector<std::string> asked;
  uint64_t from_coordinator = 0;
  int looks = 0;
  uint64_t there = 0;
  uint64_t step = 1;
};

using Manner = FakeSources::Manner;

class SourcedBlobsTest : public testing::Test {
 protected:
  SourcedBlobsTest()
      : blobs_(&sources_,
               {.patience = milliseconds(20),
                .longest_wait = milliseconds(200),
                .look_again = milliseconds(1)},
               [this](const std::string& line) { log_ += line + "\n"; }) {}

  std::string Fetch(uint64_t offset = 0, const std::string& digest = "d") {
    std::string got;
    Cancellation cancel;
    status_ = blobs_.Fetch(
        digest, offset,
        [&](std::string_view chunk) {
          got += chunk;
          return absl::OkStatus();
        },
        &cancel);
    return got;
  }

  FakeSources sources_;
  std::string log_;
  SourcedBlobs blobs_;
  absl::Status status_;
};

TEST_F(SourcedBlobsTest, AWorkerThatHasItGivesItAndTheCoordinatorNothing) {
  sources_.workers = {{"a", Manner::kGives}};
  EXPECT_EQ(Fetch(), sources_.bytes);
  EXPECT_TRUE(status_.ok()) << status_;
  EXPECT_EQ(sources_.from_coordinator, 0u);
  EXPECT_EQ(blobs_.from_workers_bytes(), sources_.bytes.size());
  EXPECT_EQ(Fetch(4), sources_.bytes.substr(4));
}

TEST_F(SourcedBlobsTest, WhereNobodyHasItTheCoordinatorSendsIt) {
  EXPECT_EQ(Fetch(), sources_.bytes);
  EXPECT_EQ(sources_.from_coordinator, sources_.bytes.size());
  EXPECT_EQ(blobs_.from_workers_bytes(), 0u);
}

TEST_F(SourcedBlobsTest, ATransferThatBreaksGoesOnElsewhereWhereItBroke) {
  sources_.workers = {{"a", Manner::kHasNot}, {"b", Manner::kBreaks}, {"c", Manner::kGives}};
  EXPECT_EQ(Fetch(), sources_.bytes);
  EXPECT_THAT(sources_.asked, ElementsAre("a", "b", "c"));
  EXPECT_EQ(blobs_.from_workers_bytes(), sources_.bytes.size());
  EXPECT_THAT(log_, HasSubstr("node 'b' does not give"));
}

TEST_F(SourcedBlobsTest, ASlowWorkerIsLeftAndNotAskedAgainForAWhile) {
  sources_.workers = {{"a", Manner::kSlow}};
  EXPECT_EQ(Fetch(), sources_.bytes);
  EXPECT_EQ(sources_.from_coordinator, sources_.bytes.size() - 1);
  EXPECT_EQ(Fetch(), sources_.bytes);
  EXPECT_THAT(sources_.asked, ElementsAre("a"));
}

TEST_F(SourcedBlobsTest, WhatIsOnItsWayToAWorkerIsWaitedFor) {
  sources_.workers = {{"a", Manner::kComing}};
  EXPECT_EQ(Fetch(), sources_.bytes);
  EXPECT_EQ(sources_.from_coordinator, 0u);
  EXPECT_EQ(sources_.asked.size(), 5u);
}

TEST_F(SourcedBlobsTest, AWorkerThatGetsNoFurtherWithItIsNotWaitedForWithoutEnd) {
  sources_.workers = {{"a", Manner::kStuck}};
  EXPECT_EQ(Fetch(), sources_.bytes);
  EXPECT_EQ(sources_.from_coordinator, sources_.bytes.size());
}

TEST_F(SourcedBlobsTest, AWorkerThatGetsLittleOfItIsNotWaitedForEither) {
  sources_.workers = {{"a", Manner::kDribbles}};
  EXPECT_EQ(Fetch(), sources_.bytes);
  EXPECT_EQ(sources_.from_coordinator, sources_.bytes.size());
}

TEST_F(SourcedBlobsTest, AWorkerThatSaysItGetsMuchWithoutEndIsLeftInTheEnd) {
  sources_.workers = {{"a", Manner::kDribbles}};
  sources_.step = uint64_t{1} << 30;
  EXPECT_EQ(Fetch(), sources_.bytes);
  EXPECT_EQ(sources_.from_coordinator, sources_.bytes.size());
}

TEST_F(SourcedBlobsTest, WhereSeveralGaveSomeOfAWrongBlobNobodyIsBarred) {
  sources_.workers = {{"a", Manner::kBreaks}, {"b", Manner::kLies}};
  EXPECT_NE(Fetch(), sources_.bytes);
  EXPECT_TRUE(blobs_.OnBad("d"));
  EXPECT_EQ(blobs_.bad_blobs(), 1u);
  EXPECT_THAT(log_, HasSubstr("of which some came from node 'a', node 'b' each"));
  sources_.asked.clear();
  EXPECT_EQ(Fetch(), sources_.bytes);
  EXPECT_THAT(sources_.asked, IsEmpty()) << "that blob comes from the coordinator";
  EXPECT_EQ(sources_.from_coordinator, sources_.bytes.size());
  sources_.workers = {{"b", Manner::kGives}};
  EXPECT_EQ(Fetch(0, "another"), sources_.bytes);
  EXPECT_THAT(sources_.asked, ElementsAre("b"));
}

TEST_F(SourcedBlobsTest, WhoGaveTheRestOfAPartialFileIsNotBarredForIt) {
  sources_.workers = {{"a", Manner::kGives}};
  Fetch(4);
  EXPECT_TRUE(blobs_.OnBad("d"));
  EXPECT_EQ(Fetch(0, "another"), sources_.bytes);
  EXPECT_THAT(sources_.asked, ElementsAre("a", "a"));
}

TEST_F(SourcedBlobsTest, ALyingWorkersBytesAreThrownAwayAndItIsNotAskedAgain) {
  const auto directory = std::filesystem::path(testing::TempDir()) / "strata-lying-worker";
  std::filesystem::remove_all(directory);
  const auto cache = WeightCache::Open(directory.string(), 0).value();
  BlobFetcher fetcher(cache.get(), {.first_backoff = milliseconds(1)});
  sources_.workers = {{"a", Manner::kLies}};
  FetchProgress progress;
  Cancellation cancel;
  std::string log;
  const auto add = [&](const std::string& line) { log += line; };
  const Blob blob{Sha256Hex(sources_.bytes), sources_.bytes.size()};
  const auto set = fetcher.Fetch({blob}, &blobs_, &progress, &cancel, add);
  ASSERT_TRUE(set.ok()) << set.status();
  const auto mapped = (*set)->Find(blob.sha256)->Map().value();
  EXPECT_EQ(std::string(reinterpret_cast<const char*>(mapped->data()), mapped->bytes()),
            sources_.bytes);
  EXPECT_EQ(blobs_.bad_blobs(), 1u);
  EXPECT_THAT(log_, HasSubstr("node 'a' gave bytes that are not those of blob"));
  EXPECT_EQ(sources_.from_coordinator, sources_.bytes.size());
  sources_.asked.clear();
  EXPECT_EQ(Fetch(), sources_.bytes);
  EXPECT_THAT(sources_.asked, IsEmpty());
  std::filesystem::remove_all(directory);
}

TEST_F(SourcedBlobsTest, AWorkerThatSaysItGaveAllAndDidNotIsLeftToo) {
  sources_.workers = {{"a", Manner::kEnds}};
  EXPECT_EQ(Fetch(), "");
  EXPECT_TRUE(blobs_.OnBad("d"));
  EXPECT_EQ(Fetch(), sources_.bytes);
}

TEST_F(SourcedBlobsTest, WhatTheCoordinatorGaveIsNobodysLie) {
  EXPECT_EQ(Fetch(), sources_.bytes);
  EXPECT_FALSE(blobs_.OnBad("d"));
  EXPECT_EQ(blobs_.bad_blobs(), 0u);
}

TEST_F(SourcedBlobsTest, AFullDiskEndsItWhoeverGives) {
  sources_.workers = {{"a", Manner::kGives}, {"b", Manner::kGives}};
  Cancellation cancel;
  const absl::Status full = blobs_.Fetch(
      "d", 0,
      [](std::string_view) {
        return Error(absl::StatusCode::kResourceExhausted, "DISK_FULL", "the disk is full");
      },
      &cancel);
  EXPECT_EQ(ReasonOf(full), "DISK_FULL");
  EXPECT_THAT(sources_.asked, ElementsAre("a"));
  EXPECT_EQ(sources_.from_coordinator, 0u);
}

}  // namespace
}  // namespace strata
