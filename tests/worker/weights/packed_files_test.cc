#include "worker/weights/packed_files.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <chrono>
#include <csignal>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <thread>

#include "common/digest.h"
#include "common/platform/platform.h"
#include "common/random.h"
#include "common/status.h"
#include "tests/can_map.h"

namespace strata {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

// Two parts and a rest, as many threads' worth of splitting.
constexpr size_t kBytes = (size_t{2} << 20) + 12'345;

std::vector<uint8_t> Bytes(size_t size, uint64_t seed) {
  std::vector<uint8_t> bytes(size);
  for (size_t i = 0; i < size; ++i) {
    bytes[i] = static_cast<uint8_t>(Philox(seed, 0, static_cast<uint32_t>(i)));
  }
  return bytes;
}

PackedForm Form(const std::string& name, uint64_t bytes) {
  return {Sha256Hex(name), bytes, {Sha256Hex("source of " + name)}};
}

void OnThreeThreads(size_t count, const std::function<void(size_t, size_t)>& part) {
  std::vector<std::thread> threads;
  for (size_t i = 0; i < 3; ++i) {
    threads.emplace_back([&, i] { part(count * i / 3, count * (i + 1) / 3); });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
}

class PackedFilesTest : public ::testing::Test {
 protected:
  void SetUp() override {
    dir_ = fs::path(::testing::TempDir()) /
           ("strata-packed-" +
            std::string(::testing::UnitTest::GetInstance()->current_test_info()->name()));
    fs::remove_all(dir_);
    Reopen(0);
  }
  void TearDown() override {
    files_.reset();
    cache_.reset();
    fs::remove_all(dir_);
  }

  // As a new process would.
  void Reopen(uint64_t limit) {
    files_.reset();
    cache_.reset();
    auto cache = WeightCache::Open(dir_.string(), limit);
    ASSERT_TRUE(cache.ok()) << cache.status();
    cache_ = *std::move(cache);
    NewLoad();
  }
  void NewLoad(bool maps = true) {
    files_ = std::make_unique<PackedFiles>(
        cache_.get(), [this](const std::string& line) { log_ += line + "\n"; }, maps);
  }

  absl::Status Read(const PackedForm& form, std::vector<uint8_t>* out) {
    out->assign(form.bytes, 0xee);
    return files_->Read(form, *out, OnThreeThreads);
  }
  // Into pages that may become a map of the file, with others' behind them.
  absl::Status Map(const PackedForm& form, std::vector<uint8_t>* out) {
    const size_t whole = RoundUpToPages(form.bytes);
    uint8_t* const pages = AllocatePages(whole + PageBytes(), PageBytes());
    pages[whole] = 0xee;
    const absl::StatusOr<bool> mapped =
        files_->Map(form, {pages, static_cast<size_t>(form.bytes)}, OnThreeThreads);
    if (!mapped.ok()) {
      std::memset(pages, 0x55, whole);  // They are the caller's again.
    } else {
      maps_ += *mapped ? 1 : 0;
    }
    out->assign(pages, pages + form.bytes);
    EXPECT_EQ(pages[whole], 0xee);
    FreePages(pages, whole + PageBytes());
    return mapped.status();
  }
  absl::Status Get(bool map, const PackedForm& form, std::vector<uint8_t>* out) {
    return map ? Map(form, out) : Read(form, out);
  }
  fs::path PathOf(const PackedForm& form) const {
    return dir_ / "packed" / form.key.substr(0, 2) / form.key;
  }
  // Everything under `packed`.
  size_t FilesOnDisk() const {
    size_t count = 0;
    for (const auto& entry : fs::recursive_directory_iterator(dir_ / "packed")) {
      count += entry.is_regular_file() ? 1 : 0;
    }
    return count;
  }

  fs::path dir_;
  std::unique_ptr<WeightCache> cache_;
  std::unique_ptr<PackedFiles> files_;
  std::string log_;
  int maps_ = 0;
};

TEST_F(PackedFilesTest, WhatWasWrittenIsReadByTheNextProcess) {
  const std::vector<uint8_t> bytes = Bytes(kBytes, 1);
  const PackedForm form = Form("a", kBytes);
  EXPECT_FALSE(files_->Has(form));
  files_->Write(form, bytes);
  for (const bool map : {false, true}) {
    for (const bool reopened : {false, true}) {
      if (reopened) {
        Reopen(0);
      } else if (map) {
        NewLoad();
      }
      EXPECT_EQ(cache_->bytes(), fs::file_size(PathOf(form)));
      ASSERT_TRUE(files_->Has(form));
      std::vector<uint8_t> read;
      ASSERT_TRUE(Get(map, form, &read).ok());
      EXPECT_TRUE(read == bytes);
      EXPECT_EQ(files_->read_bytes(), kBytes);
      EXPECT_EQ(files_->sources().count(form.sources[0]), 1u);
    }
  }
  EXPECT_EQ(maps_, testing::CanMap() ? 2 : 0);
  EXPECT_FALSE(files_->Has(Form("b", kBytes)));
  EXPECT_FALSE(files_->Has(Form("a", kBytes - 1)));
  EXPECT_EQ(log_, "");
}

TEST_F(PackedFilesTest, WhoeverIsInNoHurryHasAllInMemoryOfHisOwn) {
  const std::vector<uint8_t> bytes = Bytes(kBytes, 1);
  const PackedForm form = Form("a", kBytes);
  files_->Write(form, bytes);
  NewLoad(/*maps=*/false);
  ASSERT_TRUE(files_->Has(form));
  std::vector<uint8_t> read;
  ASSERT_TRUE(Map(form, &read).ok());
  EXPECT_TRUE(read == bytes);
  EXPECT_EQ(files_->read_bytes(), kBytes);
  EXPECT_EQ(maps_, 0);
}

TEST_F(PackedFilesTest, ASpoiltFileIsDeletedAndMayBeWrittenAgain) {
  const std::vector<uint8_t> bytes = Bytes(kBytes, 2);
  const PackedForm form = Form("a", kBytes);
  const auto flip = [&](size_t at) {
    std::fstream file(PathOf(form), std::ios::in | std::ios::out | std::ios::binary);
    file.seekg(static_cast<std::streamoff>(at));
    const int byte = file.get();
    file.seekp(static_cast<std::streamoff>(at));
    file.put(static_cast<char>(byte ^ 0x10));
  };
  const std::vector<std::function<void()>> deeds = {
      [&] { flip(0); },
      [&] { flip(kBytes - 1); },
      [&] { flip(kBytes); },       // The first checksum.
      [&] { flip(kBytes + 12); },  // That of the checksums.
      [&] { fs::resize_file(PathOf(form), kBytes); },
      [&] { fs::resize_file(PathOf(form), 0); },
      [&] { fs::remove(PathOf(form)); },
      [&] {  // Right in itself, but not what its name says.
        const PackedForm other = Form("b", kBytes);
        files_->Write(other, bytes);
        fs::rename(PathOf(other), PathOf(form));
      },
  };
  for (size_t i = 0; i < 2 * deeds.size(); ++i) {
    SCOPED_TRACE(i);
    const bool map = i % 2 == 1;
    Reopen(0);
    files_->Write(form, bytes);
    ASSERT_TRUE(files_->Has(form));
    deeds[i / 2]();
    log_.clear();
    std::vector<uint8_t> read;
    EXPECT_FALSE(Get(map, form, &read).ok());
    EXPECT_THAT(log_, HasSubstr(PathOf(form).string()));
    EXPECT_FALSE(fs::exists(PathOf(form)));
    EXPECT_FALSE(files_->Has(form));
    EXPECT_EQ(files_->read_bytes(), 0u);
    files_->Write(form, bytes);
    ASSERT_TRUE(files_->Has(form));
    ASSERT_TRUE(Get(map, form, &read).ok());
    EXPECT_TRUE(read == bytes);
    fs::remove_all(dir_ / "packed");
  }
}

TEST_F(PackedFilesTest, AFileThatACrashCutShortIsNotThere) {
  const PackedForm form = Form("a", kBytes);
  files_->Write(form, Bytes(kBytes, 3));
  fs::resize_file(PathOf(form), 0);
  std::ofstream(PathOf(form).string() + ".partial") << "half";
  Reopen(0);
  EXPECT_FALSE(files_->Has(form));
  EXPECT_FALSE(fs::exists(PathOf(form).string() + ".partial"));
  EXPECT_EQ(cache_->bytes(), 0u);
}

TEST_F(PackedFilesTest, WhatIsWantedNoMoreIsDeletedButForWhatIsPinned) {
  constexpr size_t kSmall = 10'000;
  for (const char* name : {"a", "b"}) {
    files_->Write(Form(name, kSmall), Bytes(kSmall, 3));
  }
  const std::vector<Blob> made = files_->written();
  ASSERT_EQ(made.size(), 2u);
  const CachePin pin(cache_.get(), {made[0]}, CachePin::Kind::kSoft);
  NewLoad();
  cache_->DeletePacked(made);
  EXPECT_EQ(cache_->HasPacked(made[0]) + cache_->HasPacked(made[1]), 1);
  EXPECT_TRUE(cache_->HasPacked(made[0]));
  EXPECT_EQ(cache_->bytes(), made[0].bytes);
  EXPECT_EQ(FilesOnDisk(), 1u);
}

TEST_F(PackedFilesTest, ACrashWhileAFileIsDeletedLeavesNothing) {
  const PackedForm form = Form("a", kBytes);
  files_->Write(form, Bytes(kBytes, 3));
  fs::rename(PathOf(form), PathOf(form).string() + ".gone");
  Reopen(0);
  EXPECT_FALSE(files_->Has(form));
  EXPECT_EQ(FilesOnDisk(), 0u);
  EXPECT_EQ(cache_->bytes(), 0u);
}

TEST_F(PackedFilesTest, AFullDiskIsSaidOnceAndLeavesNothing) {
  rlimit before{};
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &before), 0);
  std::signal(SIGXFSZ, SIG_IGN);
  rlimit small = before;
  small.rlim_cur = 40'000;
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &small), 0);
  for (const char* name : {"a", "b", "c"}) {
    files_->Write(Form(name, kBytes), Bytes(kBytes, 4));
  }
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &before), 0);
  EXPECT_THAT(log_, HasSubstr("not kept"));
  EXPECT_EQ(std::count(log_.begin(), log_.end(), '\n'), 1) << log_;
  EXPECT_EQ(FilesOnDisk(), 0u);
  EXPECT_EQ(cache_->bytes(), 0u);
  EXPECT_TRUE(files_->files().empty());
  // The next load tries again.
  NewLoad();
  files_->Write(Form("a", kBytes), Bytes(kBytes, 4));
  EXPECT_TRUE(files_->Has(Form("a", kBytes)));
}

TEST_F(PackedFilesTest, TheLimitEvictsWhatWasUsedLongestAgoButNotWhatThisLoadUses) {
  constexpr size_t kSmall = 10'000;
  const auto bytes = Bytes(kSmall, 5);
  const uint64_t file = [&] {
    files_->Write(Form("a", kSmall), bytes);
    return cache_->bytes();
  }();
  Reopen(3 * file);
  const auto pause = [] { std::this_thread::sleep_for(std::chrono::milliseconds(15)); };
  for (const char* name : {"b", "c"}) {
    pause();
    files_->Write(Form(name, kSmall), bytes);
  }
  NewLoad();
  pause();
  std::vector<uint8_t> read;
  ASSERT_TRUE(files_->Has(Form("a", kSmall)));
  ASSERT_TRUE(Read(Form("a", kSmall), &read).ok());  // Now b is the oldest.
  files_->Write(Form("d", kSmall), bytes);
  EXPECT_TRUE(fs::exists(PathOf(Form("a", kSmall))));
  EXPECT_FALSE(fs::exists(PathOf(Form("b", kSmall))));
  EXPECT_TRUE(fs::exists(PathOf(Form("c", kSmall))));
  EXPECT_EQ(cache_->bytes(), 3 * file);
  // a and d are in use: what does not fit beside them is not written, and evicts nothing.
  EXPECT_EQ(log_, "");
  files_->Write(Form("large", 2 * kSmall), Bytes(2 * kSmall, 6));
  EXPECT_THAT(log_, HasSubstr("--cache-limit"));
  EXPECT_FALSE(fs::exists(PathOf(Form("large", 2 * kSmall))));
  EXPECT_TRUE(fs::exists(PathOf(Form("c", kSmall))));
}

TEST_F(PackedFilesTest, BlobsThatNobodyUsesMakeRoomForPackedWeights) {
  Reopen(45'000);
  const std::string source(30'000, 'x');
  const Blob blob = {Sha256Hex(source), source.size()};
  {
    auto writer = cache_->Write(blob);
    ASSERT_TRUE(writer.ok());
    ASSERT_TRUE((*writer)->Append(source).ok());
    ASSERT_TRUE((*writer)->Commit().ok());
  }
  auto pin = std::make_unique<CachePin>(cache_.get(), std::vector<Blob>{blob});
  const auto bytes = Bytes(20'000, 7);
  files_->Write(Form("a", 20'000), bytes);
  EXPECT_FALSE(files_->Has(Form("a", 20'000)));
  pin.reset();
  NewLoad();
  files_->Write(Form("a", 20'000), bytes);
  EXPECT_TRUE(files_->Has(Form("a", 20'000)));
  EXPECT_FALSE(cache_->Map(blob).ok());
  EXPECT_LE(cache_->bytes(), 45'000u);
}

}  // namespace
}  // namespace strata
