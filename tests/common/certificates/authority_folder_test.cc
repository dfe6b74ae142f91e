#include "common/certificates/authority_folder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <csignal>
#include <filesystem>
#include <string>
#include <vector>

#include "common/certificates/tls_folder.h"
#include "common/status.h"
#include "tests/common/certificates/made.h"

namespace strata {
namespace {

namespace fs = std::filesystem;
using testing::MadeAuthority;

class AuthorityFolderTest : public ::testing::Test {
 protected:
  AuthorityFolderTest() {
    fs::remove_all(path_);
    EXPECT_TRUE(WriteAuthority(path_, first_).ok());
  }
  ~AuthorityFolderTest() override { fs::remove_all(path_); }

  AuthoritySet Read() {
    auto set = ReadAuthoritySet(path_);
    EXPECT_TRUE(set.ok()) << set.status();
    return set.value_or(AuthoritySet());
  }
  std::vector<std::string> Trusted() { return CertificateFingerprints(Read().Trusted()); }
  static std::string Print(const CertifiedKey& authority) {
    return CertificateFingerprint(authority.cert).value();
  }

  const std::string path_ = ::testing::TempDir() + "strata-authority-folder";
  const CertifiedKey first_ = MadeAuthority("home");
  const CertifiedKey second_ = MadeAuthority("home");
};

// While it lives, no file of this process takes a byte, whoever its user is.
class NoRoom {
 public:
  NoRoom() {
    getrlimit(RLIMIT_FSIZE, &before_);
    const rlimit none = {0, before_.rlim_max};
    signal_ = std::signal(SIGXFSZ, SIG_IGN);
    setrlimit(RLIMIT_FSIZE, &none);
  }
  ~NoRoom() {
    setrlimit(RLIMIT_FSIZE, &before_);
    std::signal(SIGXFSZ, signal_);
  }
  NoRoom(const NoRoom&) = delete;
  NoRoom& operator=(const NoRoom&) = delete;

 private:
  rlimit before_ = {};
  void (*signal_)(int) = SIG_DFL;
};

TEST_F(AuthorityFolderTest, GoesFromOneToTheOtherByWayOfBoth) {
  EXPECT_EQ(Trusted(), std::vector{Print(first_)});
  EXPECT_EQ(ReasonOf(SwitchAuthority(path_)), "WRONG_PHASE");
  EXPECT_EQ(ReasonOf(DropPreviousAuthority(path_)), "WRONG_PHASE");

  ASSERT_TRUE(AddNextAuthority(path_, second_).ok());
  EXPECT_EQ(Read().signer.key, first_.key);
  EXPECT_EQ(Trusted(), (std::vector{Print(first_), Print(second_)}));
  EXPECT_EQ(ReasonOf(AddNextAuthority(path_, second_)), "WRONG_PHASE");
  EXPECT_EQ(ReasonOf(DropPreviousAuthority(path_)), "WRONG_PHASE");

  ASSERT_TRUE(SwitchAuthority(path_).ok());
  EXPECT_EQ(Read().signer.key, second_.key);
  EXPECT_EQ(Trusted(), (std::vector{Print(second_), Print(first_)}));
  EXPECT_EQ(ReasonOf(AddNextAuthority(path_, first_)), "WRONG_PHASE");
  EXPECT_EQ(ReasonOf(SwitchAuthority(path_)), "WRONG_PHASE");

  ASSERT_TRUE(DropPreviousAuthority(path_).ok());
  EXPECT_EQ(Read().signer.key, second_.key);
  EXPECT_EQ(Trusted(), std::vector{Print(second_)});
  EXPECT_FALSE(fs::exists(path_ + "/previous") || fs::exists(path_ + "/next"));
}

TEST_F(AuthorityFolderTest, ASwitchThatWasInterruptedAnywhereIsCompleted) {
  ASSERT_TRUE(AddNextAuthority(path_, second_).ok());
  // After each of its writes in turn: the previous one's copy, the key, the certificate.
  const std::string copy = path_ + "-copy";
  for (int writes = 1; writes <= 3; ++writes) {
    fs::remove_all(copy);
    fs::copy(path_, copy, fs::copy_options::recursive);
    ASSERT_TRUE(WriteAuthority(copy + "/previous", first_).ok());
    if (writes >= 2) fs::rename(copy + "/next/ca-key.pem", copy + "/ca-key.pem");
    if (writes >= 3) fs::rename(copy + "/next/ca.pem", copy + "/ca.pem");
    const auto set = ReadAuthoritySet(copy);
    ASSERT_TRUE(set.ok()) << writes << ": " << set.status();
    EXPECT_EQ(set->signer.cert, second_.cert);
    EXPECT_EQ(set->signer.key, second_.key);
    EXPECT_EQ(set->next, "");
    EXPECT_EQ(set->previous, first_.cert);
  }
  fs::remove_all(copy);
}

TEST_F(AuthorityFolderTest, ANextOneThatWasNotWrittenToItsEndIsNone) {
  fs::create_directory(path_ + "/next");
  fs::copy(path_ + "/ca-key.pem", path_ + "/next/ca-key.pem");
  EXPECT_EQ(Trusted(), std::vector{Print(first_)});
  EXPECT_TRUE(AddNextAuthority(path_, second_).ok());
  EXPECT_EQ(Trusted().size(), 2u);
}

TEST_F(AuthorityFolderTest, WhoCannotWriteIsToldWhatTheCoordinatorHasToBeLetDo) {
  absl::Status refused;
  {
    const NoRoom full;
    refused = AddNextAuthority(path_, second_);
  }
  EXPECT_EQ(ReasonOf(refused), "FILE_FAILED");
  EXPECT_THAT(DetailOf(refused).message(), ::testing::HasSubstr(path_ + "/next"));
  EXPECT_THAT(DetailOf(refused).hint(), ::testing::HasSubstr("--authority"));
  EXPECT_EQ(Trusted(), std::vector{Print(first_)});
  EXPECT_TRUE(AddNextAuthority(path_, second_).ok());
}

}  // namespace
}  // namespace strata
