#include "common/discovery/announcer.h"

#include <algorithm>
#include <chrono>
#include <memory>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "common/discovery/found_coordinators.h"
#include "common/platform/platform.h"
#include "common/platform/run_program.h"
#include "common/printable.h"
#include "common/status.h"

namespace strata {
namespace {

constexpr std::chrono::seconds kLookEvery{1};
// After an end: so many looks, twice as many each time, until it runs again.
constexpr int kLongestPause = 32;
constexpr size_t kMaxNameBytes = 63;  // A label of DNS.
constexpr size_t kShownOutputBytes = 200;

std::vector<std::string> WordsOf(const Announcement& announcement) {
  std::vector<std::string> words = {"avahi-publish", "--service",
                                    announcement.name.substr(0, kMaxNameBytes), kCoordinatorService,
                                    std::to_string(announcement.port)};
  words.insert(words.end(), announcement.facts.begin(), announcement.facts.end());
  return words;
}

absl::Status NotAnnounced(const std::string& why, const std::string& hint) {
  return Error(absl::StatusCode::kUnavailable, "NOT_ANNOUNCED", why).Hint(hint);
}

absl::Status WhyItEnded(const ProgramResult& result) {
  const std::string said(absl::StripAsciiWhitespace(result.error));
  return NotAnnounced(absl::StrCat("avahi-publish ended with status ", result.exit_status, ": ",
                                   Printable(said, kShownOutputBytes)),
                      "start avahi-daemon; it is tried again by itself");
}

}  // namespace

void Announcer::Start(std::function<Announcement()> what) {
  thread_ = std::thread([this, what = std::move(what)] {
    NameThread("strata-announce");
    Work(what);
  });
}

void Announcer::Stop() {
  {
    MutexLock lock(&mutex_);
    stopping_ = true;
    changed_.NotifyAll();
  }
  if (thread_.joinable()) {
    thread_.join();
  }
}

absl::Status Announcer::problem() const {
  MutexLock lock(&mutex_);
  return problem_;
}

void Announcer::SetProblem(const absl::Status& problem) {
  MutexLock lock(&mutex_);
  problem_ = problem;
}

bool Announcer::Waited() {
  MutexLock lock(&mutex_);
  if (!stopping_) {
    changed_.WaitFor(&mutex_, kLookEvery);
  }
  return stopping_;
}

void Announcer::Work(const std::function<Announcement()>& what) {
  std::unique_ptr<RunningProgram> running;
  Announcement announced;
  int pause = 1;
  int left = 0;  // Looks until it is tried again.
  do {
    const Announcement wanted = what();
    if (running != nullptr && wanted != announced) {
      running = nullptr;
    }
    if (running != nullptr) {
      if (!running->HasEnded()) {
        SetProblem(absl::OkStatus());
        pause = 1;
        continue;
      }
      SetProblem(WhyItEnded(running->result()));
      running = nullptr;
      left = pause;
      pause = std::min(2 * pause, kLongestPause);
    }
    if (left > 0) {
      --left;
      continue;
    }
    announced = wanted;
    auto started = RunningProgram::Start(WordsOf(wanted), {.ends_with_thread = true});
    if (started.ok()) {
      running = *std::move(started);
    } else {
      SetProblem(NotAnnounced(std::string(started.status().message()), "install avahi-utils"));
      left = pause = kLongestPause;
    }
  } while (!Waited());
}

}  // namespace strata
