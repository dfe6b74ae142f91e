#include "common/examination/examine.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <ctime>
#include <filesystem>
#include <fstream>
#include <string>

#include "common/certificates/authority.h"
#include "common/certificates/tls_folder.h"
#include "common/examination/machine_facts.h"

namespace strata {
namespace {

namespace fs = std::filesystem;

std::string Folder(const std::string& name) {
  const fs::path path = fs::path(::testing::TempDir()) / ("examine-" + name);
  fs::remove_all(path);
  fs::create_directories(path);
  return path.string();
}

// A worker's certificate of an authority that lasts for longer.
std::string Certificate(const std::string& name, int64_t now_s, int64_t ends_s) {
  const CertificateTerm term = {now_s - 1000, now_s + 1'000'000'000};
  const CertifiedKey authority = MakeAuthority("test", term).value();
  TlsFolder folder = {.ca = authority.cert, .own = {}};
  folder.own.key = MakePrivateKey().value();
  folder.own.cert = IssueCertificate(authority, MakeCertificateRequest(folder.own.key).value(),
                                     {CertificateRole::kWorker, "test", "a"}, {"10.0.0.2"},
                                     {now_s - 1000, ends_s})
                        .value();
  const std::string path = Folder(name) + "/tls";
  EXPECT_TRUE(WriteTlsFolder(path, folder).ok());
  return path;
}

TEST(CertificateFactsTest, AGoodOneHasNoFault) {
  const auto now_s = static_cast<int64_t>(std::time(nullptr));
  const std::string folder = Certificate("good", now_s, now_s + 100'000'000);
  const v1::CertificateFacts facts = LookAtCertificate(folder, "10.0.0.2", now_s);
  EXPECT_FALSE(facts.has_error()) << facts.error().message();
  EXPECT_EQ(facts.ends_soon(), "");
  EXPECT_FALSE(facts.key_open());
  EXPECT_EQ(facts.not_after_s(), now_s + 100'000'000);
  EXPECT_EQ(LookAtCertificate(folder, "10.0.0.9", now_s).error().reason(), "TLS_WRONG_NAME");
  EXPECT_EQ(LookAtCertificate(folder, "", now_s + 200'000'000).error().reason(), "TLS_EXPIRED");
  EXPECT_NE(LookAtCertificate(folder, "", now_s + 99'999'000).ends_soon(), "");
  EXPECT_EQ(LookAtCertificate(folder + "/nowhere", "", now_s).error().reason(), "TLS_FILE_MISSING");
  EXPECT_EQ(LookAtCertificate("", "", now_s).folder(), "");
}

TEST(CertificateFactsTest, AKeyIsOpenWhereOthersReachIt) {
  const auto now_s = static_cast<int64_t>(std::time(nullptr));
  const std::string folder = Certificate("open", now_s, now_s + 100'000'000);
  ASSERT_EQ(chmod((folder + "/key.pem").c_str(), 0644), 0);
  EXPECT_FALSE(LookAtCertificate(folder, "", now_s).key_open()) << "nobody enters the folder";
  ASSERT_EQ(chmod(folder.c_str(), 0755), 0);
  const v1::CertificateFacts facts = LookAtCertificate(folder, "", now_s);
  EXPECT_TRUE(facts.key_open());
  EXPECT_EQ(facts.key_mode(), 0644u);
}

TEST(DiskFactsTest, AFolderThatIsNotThereIsOnTheDiskOfTheOneAbove) {
  const std::string folder = Folder("disk");
  const v1::DiskFacts facts = LookAtDisk(folder + "/not/yet");
  EXPECT_EQ(facts.path(), folder);
  EXPECT_GT(facts.total_bytes(), 0u);
  EXPECT_TRUE(facts.writable());
  EXPECT_FALSE(facts.read_only());
}

TEST(MemoryFactsTest, SwapIsThatOfTheProcess) {
  const std::string root = Folder("memory");
  fs::create_directories(root + "/proc/self");
  std::ofstream(root + "/proc/meminfo")
      << "MemTotal:       16000 kB\nSwapTotal:       4000 kB\nSwapFree:        1000 kB\n";
  std::ofstream(root + "/proc/self/status") << "VmRSS:\t 12 kB\nVmSwap:\t     640 kB\n";
  const v1::MemoryFacts facts = LookAtMemory(root, 5000);
  EXPECT_EQ(facts.total_bytes(), 16000u << 10);
  EXPECT_EQ(facts.swap_used_bytes(), 3000u << 10);
  EXPECT_EQ(facts.swapped_bytes(), 640u << 10);
  EXPECT_EQ(facts.promised_bytes(), 5000u);
}

TEST(ExamineTest, AProcessSaysWhatItsFileOfFlagsWouldChange) {
  const std::string file = Folder("flags") + "/worker.toml";
  std::ofstream(file) << "memory = \"2GiB\"\n";
  ExamineOptions options;
  options.program = "strata-worker";
  options.node = "a";
  options.data_dir = ::testing::TempDir();
  options.flags.config = file;
  options.flags.values = {{"memory", "1GiB", "file"}, {"threads", "0", "default"}};
  v1::MachineFacts facts = Examine(options);
  ASSERT_EQ(facts.boot().changed_flags_size(), 1);
  EXPECT_EQ(facts.boot().changed_flags(0), "memory");
  EXPECT_EQ(facts.flags_size(), 2);
  EXPECT_GT(facts.unix_time_s(), 1.7e9);
  std::ofstream(file) << "momery = \"2GiB\"\n";
  facts = Examine(options);
  EXPECT_NE(facts.boot().config_error().find("momery"), std::string::npos);
}

TEST(ExamineTest, FactsAreADocumentAndBack) {
  v1::MachineFacts facts;
  facts.set_node("a");
  facts.mutable_memory()->set_total_bytes(uint64_t{1} << 60);
  const auto again = ParseFacts(FactsDocument(facts));
  ASSERT_TRUE(again.ok());
  EXPECT_EQ(again->SerializeAsString(), facts.SerializeAsString());
  EXPECT_FALSE(ParseFacts("what?").ok());
  EXPECT_TRUE(ParseFacts("{\"node\":\"a\",\"newer\":1}").ok());
}

}  // namespace
}  // namespace strata
