#include "worker/weights/blob_fetcher.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <csignal>
#include <filesystem>
#include <fstream>
#include <functional>
#include <thread>

#include "common/digest.h"
#include "common/random.h"
#include "common/status.h"
#include "worker/weights/mapped_weights.h"

namespace strata {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

std::string Bytes(size_t size, uint64_t seed) {
  std::string bytes(size, '\0');
  for (size_t i = 0; i < size; ++i) {
    bytes[i] = static_cast<char>(Philox(seed, 0, static_cast<uint32_t>(i)));
  }
  return bytes;
}

Blob BlobOf(const std::string& bytes) { return {Sha256Hex(bytes), bytes.size()}; }

// Serves blobs from memory, in chunks of 1000 bytes, with the faults of a network.
class FakeClient : public BlobClient {
 public:
  Blob Add(const std::string& bytes) {
    const Blob blob = BlobOf(bytes);
    blobs_[blob.sha256] = bytes;
    return blob;
  }

  absl::Status Fetch(const std::string& sha256, uint64_t offset, const ChunkFn& sink,
                     Cancellation* cancel) override {
    ++calls;
    if (hang) {
      while (!cancel->WaitFor(std::chrono::seconds(1))) {
      }
      return absl::CancelledError("cancelled");
    }
    if (!fails.ok()) {
      return fails;
    }
    std::string bytes = blobs_.at(sha256);
    if (wrong_times > 0) {
      --wrong_times;
      bytes[bytes.size() / 2] ^= 1;
    }
    {
      MutexLock lock(&mutex_);
      offsets.push_back(offset);
    }
    uint64_t sent = 0;
    for (uint64_t at = offset; at < bytes.size(); at += 1000) {
      if (break_after > 0 && sent >= break_after) {
        return absl::UnavailableError("connection reset");
      }
      const std::string_view chunk = std::string_view(bytes).substr(at, 1000);
      sent += chunk.size();
      served += chunk.size();
      if (absl::Status status = sink(chunk); !status.ok()) {
        return status;
      }
    }
    if (too_long) {
      return sink("more");
    }
    return absl::OkStatus();
  }

  std::atomic<int> calls{0};
  std::atomic<uint64_t> served{0};
  std::atomic<int> wrong_times{0};
  std::atomic<bool> hang{false};
  uint64_t break_after = 0;  // Bytes of a call.
  bool too_long = false;
  absl::Status fails;
  std::vector<uint64_t> offsets;  // In order of the calls.

 private:
  Mutex mutex_;
  std::map<std::string, std::string> blobs_;
};

class BlobFetcherTest : public testing::Test {
 protected:
  void SetUp() override {
    dir_ = fs::path(testing::TempDir()) /
           ("strata-cache-" +
            std::string(testing::UnitTest::GetInstance()->current_test_info()->name()));
    fs::remove_all(dir_);
    Reopen(0);
  }
  void TearDown() override {
    set_.reset();
    cache_.reset();
    fs::remove_all(dir_);
  }

  // As a new process would.
  void Reopen(uint64_t limit) {
    set_.reset();
    fetcher_.reset();
    cache_.reset();
    auto cache = WeightCache::Open(dir_.string(), limit);
    ASSERT_TRUE(cache.ok()) << cache.status();
    cache_ = *std::move(cache);
    FetcherOptions options;
    options.parallel = 1;
    options.first_backoff = std::chrono::milliseconds(1);
    options.max_backoff = std::chrono::milliseconds(4);
    fetcher_ = std::make_unique<BlobFetcher>(cache_.get(), options);
  }

  absl::Status Fetch(const std::vector<Blob>& blobs) {
    progress_ = std::make_unique<FetchProgress>();
    auto set = fetcher_->Fetch(blobs, &client_, progress_.get(), &cancel_,
                               [this](const std::string& line) { log_ += line + "\n"; });
    set_ = set.ok() ? *set : nullptr;
    return set.status();
  }

  std::string Cached(const Blob& blob) const {
    const auto held = set_->Find(blob.sha256);
    if (held == nullptr) {
      return "absent";
    }
    const auto mapped = held->Map();
    return mapped.ok()
               ? std::string(reinterpret_cast<const char*>((*mapped)->data()), (*mapped)->bytes())
               : ReasonOf(mapped.status());
  }
  // Mappings of files of the cache.
  size_t Mappings() const {
    std::ifstream maps("/proc/self/maps");
    size_t count = 0;
    for (std::string line; std::getline(maps, line);) {
      count += line.find(dir_.string()) != std::string::npos;
    }
    return count;
  }
  fs::path PathOf(const Blob& blob) const {
    return dir_ / "sha256" / blob.sha256.substr(0, 2) / blob.sha256;
  }

  fs::path dir_;
  FakeClient client_;
  Cancellation cancel_;
  std::unique_ptr<WeightCache> cache_;
  std::unique_ptr<BlobFetcher> fetcher_;
  std::unique_ptr<FetchProgress> progress_;
  std::shared_ptr<const BlobSet> set_;
  std::string log_;
};

TEST_F(BlobFetcherTest, FetchesOnceAndStartsWarmTheSecondTime) {
  const std::string a = Bytes(10'500, 1);
  const std::string b = Bytes(1, 2);
  const std::vector<Blob> blobs = {client_.Add(a), client_.Add(b), client_.Add(""), BlobOf(a)};
  ASSERT_TRUE(Fetch(blobs).ok());
  EXPECT_EQ(Cached(blobs[0]), a);
  EXPECT_EQ(Cached(blobs[1]), b);
  EXPECT_EQ(Cached(blobs[2]), "");
  EXPECT_EQ(client_.served, 10'501u);
  EXPECT_EQ(progress_->total_bytes, 10'501u);
  EXPECT_EQ(progress_->done_bytes, 10'501u);
  EXPECT_EQ(progress_->fetched_bytes, 10'501u);
  EXPECT_EQ(cache_->bytes(), 10'501u);

  Reopen(0);
  EXPECT_EQ(cache_->bytes(), 10'501u);
  ASSERT_TRUE(Fetch(blobs).ok());
  EXPECT_EQ(client_.served, 10'501u);
  EXPECT_EQ(progress_->done_bytes, 10'501u);
  EXPECT_EQ(fetcher_->fetched_bytes(), 0u);
}

TEST_F(BlobFetcherTest, ABrokenTransferGoesOnWhereItBroke) {
  const std::string bytes = Bytes(10'500, 3);
  const Blob blob = client_.Add(bytes);
  client_.break_after = 3000;
  ASSERT_TRUE(Fetch({blob}).ok());
  EXPECT_EQ(Cached(blob), bytes);
  EXPECT_THAT(client_.offsets, testing::ElementsAre(0, 3000, 6000, 9000));
  EXPECT_EQ(client_.served, bytes.size());
  EXPECT_EQ(progress_->done_bytes, bytes.size());
  EXPECT_THAT(log_, HasSubstr("connection reset"));
}

TEST_F(BlobFetcherTest, AnotherProcessGoesOnWithAPartialFile) {
  const std::string bytes = Bytes(50'000, 4);
  const Blob blob = client_.Add(bytes);
  {
    auto writer = cache_->Write(blob);
    ASSERT_TRUE(writer.ok()) << writer.status();
    ASSERT_TRUE((*writer)->Append(std::string_view(bytes).substr(0, 20'123)).ok());
  }
  Reopen(0);
  EXPECT_EQ(cache_->bytes(), 20'123u);
  ASSERT_TRUE(Fetch({blob}).ok());
  EXPECT_EQ(Cached(blob), bytes);
  EXPECT_EQ(client_.served, 50'000u - 20'123u);
  EXPECT_EQ(progress_->fetched_bytes, 50'000u - 20'123u);
  EXPECT_EQ(progress_->done_bytes, 50'000u);
}

TEST_F(BlobFetcherTest, ACorruptedCacheFileIsNoticedAndFetchedAgain) {
  const std::string bytes = Bytes(8000, 5);
  const Blob blob = client_.Add(bytes);
  ASSERT_TRUE(Fetch({blob}).ok());
  for (const bool cut : {false, true}) {
    Reopen(0);
    if (cut) {
      fs::resize_file(PathOf(blob), 7999);
    } else {
      std::fstream file(PathOf(blob), std::ios::in | std::ios::out | std::ios::binary);
      file.seekp(4321);
      file.put(static_cast<char>(bytes[4321] ^ 0x40));
    }
    const uint64_t before = client_.served;
    log_.clear();
    ASSERT_TRUE(Fetch({blob}).ok());
    EXPECT_EQ(Cached(blob), bytes);
    EXPECT_EQ(client_.served - before, bytes.size());
    EXPECT_THAT(log_, HasSubstr("spoilt"));
    EXPECT_THAT(log_, HasSubstr(blob.sha256));
    EXPECT_EQ(progress_->done_bytes, bytes.size());
  }
}

TEST_F(BlobFetcherTest, ASpoiltPartialFileIsThrownAway) {
  const std::string bytes = Bytes(8000, 6);
  const Blob blob = client_.Add(bytes);
  {
    auto writer = cache_->Write(blob);
    ASSERT_TRUE(writer.ok());
    ASSERT_TRUE((*writer)->Append("not the first bytes").ok());
  }
  ASSERT_TRUE(Fetch({blob}).ok());
  EXPECT_EQ(Cached(blob), bytes);
  EXPECT_EQ(progress_->done_bytes, bytes.size());
  EXPECT_EQ(progress_->fetched_bytes, 2 * bytes.size() - 19);
}

TEST_F(BlobFetcherTest, ASourceOfWrongBytesIsRefusedAndLeavesNothing) {
  const Blob blob = client_.Add(Bytes(8000, 7));
  client_.wrong_times = 1000;
  EXPECT_EQ(ReasonOf(Fetch({blob})), "BAD_BLOB");
  EXPECT_EQ(client_.calls, 2);
  EXPECT_FALSE(fs::exists(PathOf(blob)));
  EXPECT_EQ(cache_->bytes(), 0u);
}

TEST_F(BlobFetcherTest, ASourceOfTooManyBytesIsStopped) {
  const std::string bytes = Bytes(2000, 8);
  const Blob blob = client_.Add(bytes);
  client_.too_long = true;
  ASSERT_TRUE(Fetch({blob}).ok());
  EXPECT_EQ(Cached(blob), bytes);
}

TEST_F(BlobFetcherTest, ErrorsThatNoRetryMendsEndAtOnceOthersAfterAFewTries) {
  const Blob blob = client_.Add(Bytes(2000, 9));
  client_.fails = Error(absl::StatusCode::kFailedPrecondition, "FILE_CHANGED", "file changed");
  EXPECT_EQ(ReasonOf(Fetch({blob})), "FILE_CHANGED");
  EXPECT_EQ(client_.calls, 1);
  client_.fails = absl::UnavailableError("nobody there");
  EXPECT_TRUE(absl::IsUnavailable(Fetch({blob})));
  EXPECT_EQ(client_.calls, 1 + FetcherOptions().max_idle_tries);
}

TEST_F(BlobFetcherTest, ASourceThatServesOthersNowIsAskedAgain) {
  const Blob blob = client_.Add(Bytes(2000, 9));
  client_.fails = Error(absl::StatusCode::kResourceExhausted, "TOO_MANY_CALLS", "not now");
  EXPECT_EQ(ReasonOf(Fetch({blob})), "TOO_MANY_CALLS");
  EXPECT_EQ(client_.calls, FetcherOptions().max_idle_tries);
}

TEST_F(BlobFetcherTest, CancelEndsAHangingTransfer) {
  const Blob blob = client_.Add(Bytes(2000, 10));
  client_.hang = true;
  std::thread canceller([this] {
    while (client_.calls == 0) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    cancel_.Cancel();
  });
  EXPECT_TRUE(absl::IsCancelled(Fetch({blob})));
  canceller.join();
}

TEST_F(BlobFetcherTest, TheLimitEvictsWhatWasUsedLongestAgoButNothingInUse) {
  Reopen(30'000);
  const Blob old = client_.Add(Bytes(10'000, 11));
  const Blob used = client_.Add(Bytes(10'000, 12));
  const Blob recent = client_.Add(Bytes(10'000, 13));
  std::shared_ptr<const HeldBlob> held_early;
  for (const Blob& blob : {old, used, recent}) {
    ASSERT_TRUE(Fetch({blob}).ok());
    held_early = blob.sha256 == used.sha256 ? set_->Find(blob.sha256) : held_early;
    std::this_thread::sleep_for(std::chrono::milliseconds(15));
  }
  ASSERT_TRUE(Fetch({old}).ok());  // Now `used` is the oldest.
  // Reading is no use: all that a load reads was used when it began.
  EXPECT_TRUE(held_early->Map().ok());
  held_early = nullptr;
  const std::shared_ptr<const BlobSet> held = set_;
  const Blob next = client_.Add(Bytes(5'000, 14));
  ASSERT_TRUE(Fetch({next}).ok());
  EXPECT_TRUE(fs::exists(PathOf(old)));
  EXPECT_FALSE(fs::exists(PathOf(used)));
  EXPECT_TRUE(fs::exists(PathOf(recent)));
  EXPECT_LE(cache_->bytes(), 30'000u);
  // What is in use (10,000 bytes) leaves room for 20,000, no more.
  const Blob big = client_.Add(Bytes(20'001, 15));
  const absl::Status status = Fetch({big});
  EXPECT_EQ(ReasonOf(status), "CACHE_LIMIT");
  EXPECT_THAT(Describe(status), HasSubstr("--cache-limit"));
  EXPECT_TRUE(fs::exists(PathOf(old)));
  const Blob fits = client_.Add(Bytes(20'000, 16));
  ASSERT_TRUE(Fetch({fits}).ok());
  EXPECT_EQ(cache_->bytes(), 30'000u);
}

TEST_F(BlobFetcherTest, AFullDiskTakesWhatNobodyUsesAndThenWhatIsKeptForLater) {
  const Blob used = client_.Add(Bytes(10'000, 21));
  const Blob later = client_.Add(Bytes(10'000, 22));
  const Blob old = client_.Add(Bytes(10'000, 23));
  for (const Blob& blob : {used, later, old}) {
    ASSERT_TRUE(Fetch({blob}).ok());
  }
  set_ = nullptr;
  const CachePin hard(cache_.get(), {used});
  const CachePin soft(cache_.get(), {later}, CachePin::Kind::kSoft);
  EXPECT_EQ(cache_->FreeDisk(1), 10'000u);
  EXPECT_FALSE(cache_->Find(old.sha256).has_value());
  EXPECT_TRUE(cache_->Find(later.sha256).has_value());
  EXPECT_EQ(cache_->FreeDisk(30'000), 10'000u);
  EXPECT_FALSE(cache_->Find(later.sha256).has_value());
  EXPECT_TRUE(cache_->Find(used.sha256).has_value());
  EXPECT_EQ(cache_->FreeDisk(1), 0u);
}

TEST_F(BlobFetcherTest, AFullDiskIsATypedErrorAndTheTransferGoesOnLater) {
  const std::string bytes = Bytes(100'000, 17);
  const Blob blob = client_.Add(bytes);
  rlimit before{};
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &before), 0);
  std::signal(SIGXFSZ, SIG_IGN);
  rlimit small = before;
  small.rlim_cur = 40'000;
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &small), 0);
  const absl::Status status = Fetch({blob});
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &before), 0);
  EXPECT_EQ(ReasonOf(status), "DISK_FULL") << status;
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(cache_->bytes(), 40'000u);
  const uint64_t served = client_.served;
  ASSERT_TRUE(Fetch({blob}).ok());
  EXPECT_EQ(client_.served - served, 60'000u);
  EXPECT_EQ(Cached(blob), bytes);
}

TEST_F(BlobFetcherTest, ManyAtOnceOverTwoCallsFetchEachBlobOnce) {
  FetcherOptions options;
  options.parallel = 4;
  BlobFetcher fetcher(cache_.get(), options);
  std::vector<Blob> blobs;
  uint64_t total = 0;
  for (int i = 0; i < 40; ++i) {
    blobs.push_back(client_.Add(Bytes(1000 + 700 * i, 100 + i)));
    total += blobs.back().bytes;
  }
  std::vector<std::thread> callers;
  for (int i = 0; i < 3; ++i) {
    callers.emplace_back([&] {
      FetchProgress progress;
      Cancellation cancel;
      FakeClient* client = &client_;
      auto set = fetcher.Fetch(blobs, client, &progress, &cancel, [](const std::string&) {});
      EXPECT_TRUE(set.ok()) << set.status();
      EXPECT_EQ(progress.done_bytes, total);
    });
  }
  for (auto& caller : callers) {
    caller.join();
  }
  EXPECT_EQ(fetcher.fetched_bytes(), total);
}

TEST_F(BlobFetcherTest, DigestsThatAreNoneNeverReachTheDisk) {
  EXPECT_EQ(ReasonOf(Fetch({{"../../etc/passwd", 3}})), "BAD_DIGEST");
  EXPECT_EQ(ReasonOf(Fetch({{std::string(64, 'A'), 3}})), "BAD_DIGEST");
}

TEST_F(BlobFetcherTest, TensorsAreCheckedAgainstTheirShapes) {
  const std::string bytes = Bytes(24, 18);
  const Blob blob = client_.Add(bytes);
  EXPECT_EQ(ReasonOf(MakeBlobTensor("w", "F32", {2, 4}, blob.sha256, 24).status()), "BAD_TENSOR");
  EXPECT_EQ(ReasonOf(MakeBlobTensor("w", "F33", {2, 3}, blob.sha256, 24).status()), "BAD_TENSOR");
  EXPECT_EQ(
      ReasonOf(MakeBlobTensor("w", "F32", {1ull << 62, 1ull << 62}, blob.sha256, 24).status()),
      "BAD_TENSOR");
  auto tensor = MakeBlobTensor("w", "F32", {2, 3}, blob.sha256, 24);
  ASSERT_TRUE(tensor.ok()) << tensor.status();
}

TEST_F(BlobFetcherTest, ATensorIsPinnedWhenItIsPreparedAndMappedWhenItIsFound) {
  Reopen(30);
  const std::string bytes = Bytes(24, 18);
  const Blob blob = client_.Add(bytes);
  std::vector<BlobTensor> tensors;
  for (const char* name : {"w", "same"}) {
    tensors.push_back(*MakeBlobTensor(name, "F32", {2, 3}, blob.sha256, 24));
  }
  const MappedWeights weights(
      tensors,
      [&](const std::vector<Blob>& blobs) -> absl::StatusOr<std::shared_ptr<const BlobSet>> {
        if (absl::Status status = Fetch(blobs); !status.ok()) {
          return status;
        }
        return std::move(set_);
      });
  const auto info = weights.Describe("w");
  ASSERT_TRUE(info.ok()) << info.status();
  EXPECT_EQ(info->dtype, Dtype::kF32);
  EXPECT_EQ(info->shape, (std::vector<uint64_t>{2, 3}));
  EXPECT_EQ(info->bytes, 24u);
  EXPECT_EQ(info->sha256, blob.sha256);
  EXPECT_EQ(client_.calls, 0);
  EXPECT_EQ(ReasonOf(weights.Describe("v").status()), "TENSOR_MISSING");
  EXPECT_EQ(ReasonOf(weights.Prepare({"w", "v"})), "TENSOR_MISSING");
  EXPECT_EQ(ReasonOf(weights.Find("w").status()), "TENSOR_UNPREPARED");

  const auto read = [&](const char* name) {
    const auto view = weights.Find(name);
    return view.ok() ? std::string(reinterpret_cast<const char*>(view->data), view->bytes)
                     : ReasonOf(view.status());
  };
  ASSERT_TRUE(weights.Prepare({"w", "same"}).ok());
  EXPECT_EQ(client_.calls, 1);
  EXPECT_EQ(Mappings(), 0u);
  weights.Release("w", 23);
  EXPECT_EQ(read("w"), bytes);
  EXPECT_EQ(Mappings(), 1u);
  weights.Release("w", 24);
  EXPECT_EQ(Mappings(), 0u);
  EXPECT_EQ(read("w"), "TENSOR_UNPREPARED");
  EXPECT_EQ(read("same"), bytes);
  // Pinned until its last tensor is released.
  const Blob other = client_.Add(Bytes(10, 19));
  EXPECT_EQ(ReasonOf(Fetch({other})), "CACHE_LIMIT");
  weights.Release("same", 24);
  EXPECT_TRUE(Fetch({other}).ok());
  EXPECT_FALSE(fs::exists(PathOf(blob)));
}

}  // namespace
}  // namespace strata
