#include "common/certificates/tls_folder.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <ctime>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <utility>
#include <vector>

#include "common/rpc/tls_files.h"
#include "common/status.h"
#include "tests/common/certificates/made.h"

namespace strata {
namespace {

namespace fs = std::filesystem;
using testing::MadeAuthority;
using testing::MadeCertificate;

class TlsFolderTest : public ::testing::Test {
 protected:
  TlsFolderTest() { fs::remove_all(top_); }
  ~TlsFolderTest() override { fs::remove_all(top_); }

  // A folder whose certificate is of `name`.
  static TlsFolder Folder(const std::string& name) {
    const CertifiedKey authority = MadeAuthority(name);
    return {authority.cert, MadeCertificate(authority, {CertificateRole::kWorker, name, name})};
  }

  // How many files and folders are directly in the top one.
  size_t Entries() const {
    return static_cast<size_t>(
        std::distance(fs::directory_iterator(top_), fs::directory_iterator()));
  }

  const std::string top_ = ::testing::TempDir() + "strata-tls-folder";
  const std::string path_ = top_ + "/below/tls";
};

std::string TextOf(const fs::path& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
}

mode_t ModeOf(const std::string& path) {
  struct stat info {};
  return stat(path.c_str(), &info) == 0 ? info.st_mode & 07777 : 0;
}

TEST_F(TlsFolderTest, ACopyOfTheThreeFilesIsReplacedByWhoAsksForThat) {
  fs::create_directories(path_);
  for (const char* name : {"/ca.pem", "/cert.pem", "/key.pem"}) {
    std::ofstream(path_ + name) << "old";
  }
  const TlsFolder made = Folder("a");
  EXPECT_EQ(ReasonOf(WriteTlsFolder(path_, made)), "TLS_FOLDER_EXISTS");
  const TlsFolderAccess access = {.group = std::nullopt, .replace_copy = true};
  std::ofstream(path_ + "/notes") << "mine";
  EXPECT_EQ(ReasonOf(WriteTlsFolder(path_, made, access)), "TLS_FOLDER_EXISTS");
  fs::remove(path_ + "/notes");
  const absl::Status written = WriteTlsFolder(path_, made, access);
  ASSERT_TRUE(written.ok()) << written;
  EXPECT_TRUE(fs::is_symlink(path_));
  EXPECT_EQ(TextOf(path_ + "/cert.pem"), made.own.cert);
  ASSERT_TRUE(WriteTlsFolder(path_, Folder("b"), access).ok());
}

TEST_F(TlsFolderTest, ItsUserAloneCanReadIt) {
  ASSERT_TRUE(WriteTlsFolder(path_ + "/", Folder("a")).ok());
  EXPECT_EQ(ModeOf(path_), 0700u);
  for (const char* name : {"/ca.pem", "/cert.pem", "/key.pem"}) {
    EXPECT_EQ(ModeOf(path_ + name), 0600u) << name;
  }
  const auto read = ReadTlsFiles(path_, std::time(nullptr));
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_TRUE(read->own_chain.ok()) << read->own_chain;
}

// Whoever has found the folder reads the rest of it, though another has taken its place since.
TEST_F(TlsFolderTest, AFolderTakesThePlaceOfTheOneBeforeAsAWhole) {
  const std::vector<TlsFolder> made = {Folder("a"), Folder("b"), Folder("c")};
  ASSERT_TRUE(WriteTlsFolder(path_, made[0]).ok());
  const fs::path first = fs::canonical(path_);
  ASSERT_TRUE(WriteTlsFolder(path_, made[1]).ok());
  EXPECT_NE(fs::canonical(path_), first);
  EXPECT_EQ(TextOf(path_ + "/key.pem"), made[1].own.key);
  for (const auto& [name, text] : {std::pair("ca.pem", made[0].ca),
                                   {"cert.pem", made[0].own.cert},
                                   {"key.pem", made[0].own.key}}) {
    EXPECT_EQ(TextOf(first / name), text) << name;
  }
  ASSERT_TRUE(WriteTlsFolder(path_, made[2]).ok());
  EXPECT_FALSE(fs::exists(first));
  EXPECT_EQ(TextOf(path_ + "/cert.pem"), made[2].own.cert);
  // The link, what it leads to, and the one before.
  EXPECT_EQ(std::distance(fs::directory_iterator(top_ + "/below"), fs::directory_iterator()), 3);
}

TEST_F(TlsFolderTest, WhatSomebodyElseMadeStays) {
  fs::create_directories(path_);
  std::ofstream(path_ + "/cert.pem") << "mine";
  EXPECT_EQ(ReasonOf(WriteTlsFolder(path_, Folder("a"))), "TLS_FOLDER_EXISTS");
  const std::string link = top_ + "/link";
  fs::create_directory_symlink(path_, link);
  EXPECT_EQ(ReasonOf(WriteTlsFolder(link, Folder("a"))), "TLS_FOLDER_EXISTS");
  EXPECT_TRUE(fs::exists(path_ + "/cert.pem"));
  EXPECT_EQ(Entries(), 2u);
}

TEST_F(TlsFolderTest, AnAuthorityIsReadAsItWasWrittenAndNeverReplaced) {
  const CertifiedKey authority = MadeAuthority("home");
  ASSERT_TRUE(WriteAuthority(path_, authority).ok());
  EXPECT_EQ(ModeOf(path_), 0700u);
  EXPECT_EQ(ModeOf(path_ + "/ca-key.pem"), 0600u);
  const auto read = ReadAuthority(path_);
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(read->cert, authority.cert);
  EXPECT_EQ(read->key, authority.key);
  EXPECT_EQ(ReasonOf(WriteAuthority(path_, MadeAuthority("home"))), "AUTHORITY_EXISTS");
  EXPECT_EQ(ReadAuthority(path_)->key, authority.key);
}

TEST_F(TlsFolderTest, AnAuthorityIsItsOwnersAlone) {
  if (geteuid() != 0) {
    GTEST_SKIP() << "only root gives files away";
  }
  const TlsFolderAccess access = {.group = 2, .owner = TlsFolderOwner{.user = 1, .group = 2}};
  ASSERT_TRUE(WriteAuthority(path_, MadeAuthority("home"), access).ok());
  for (const std::string& at : {path_, path_ + "/ca.pem", path_ + "/ca-key.pem"}) {
    struct stat found = {};
    ASSERT_EQ(stat(at.c_str(), &found), 0);
    EXPECT_EQ(found.st_uid, 1u) << at;
    EXPECT_EQ(found.st_gid, 2u) << at;
    EXPECT_EQ(found.st_mode & 0077, 0u) << at;
  }
}

TEST_F(TlsFolderTest, AnAuthorityWithoutItsKeyIsMissing) {
  ASSERT_TRUE(WriteAuthority(path_, MadeAuthority("home")).ok());
  fs::remove(path_ + "/ca-key.pem");
  EXPECT_EQ(ReasonOf(ReadAuthority(path_).status()), "AUTHORITY_MISSING");
  EXPECT_EQ(ReasonOf(ReadAuthority(top_ + "/nowhere").status()), "AUTHORITY_MISSING");
}

}  // namespace
}  // namespace strata
