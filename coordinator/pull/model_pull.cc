#include "coordinator/pull/model_pull.h"

#include <algorithm>
#include <filesystem>
#include <thread>

#include "common/names.h"
#include "common/shell_word.h"
#include "common/status.h"
#include "coordinator/pull/file_selection.h"
#include "coordinator/pull/file_transfer.h"
#include "coordinator/pull/partial_folder.h"
#include "coordinator/pull/redirects.h"
#include "coordinator/pull/url.h"
#include "nlohmann/json.hpp"

namespace strata {
namespace {

struct Listing {
  std::string commit;
  std::vector<std::string> files;
};

// Collects a small answer.
class ListingReceiver : public HopReceiver {
 public:
  ListingReceiver(const PullOptions& options, PullObserver& observer)
      : options_(options), observer_(observer) {}

  HttpHeaders RequestHeaders() override {
    body_.clear();
    return {{"Accept", "application/json"}};
  }
  void OnRedirect(const HttpResponse&, bool) override {}
  absl::Status OnResponse(const HttpResponse& response, bool own) override {
    return response.status == 200 ? absl::OkStatus() : HttpError(response, own, options_);
  }
  absl::Status OnBody(std::string_view bytes) override {
    if (body_.size() + bytes.size() > options_.max_listing_bytes) {
      return Error(absl::StatusCode::kResourceExhausted, "LISTING_TOO_LONG",
                   "the server's list of files is too long")
          .Limit("max_listing_bytes=" + std::to_string(options_.max_listing_bytes));
    }
    body_.append(bytes);
    return absl::OkStatus();
  }
  bool Cancelled() override { return observer_.Cancelled(); }

  const std::string& body() const { return body_; }

 private:
  const PullOptions& options_;
  PullObserver& observer_;
  std::string body_;
};

absl::StatusOr<Listing> ParseListing(const std::string& body, const PullOptions& options) {
  const auto json = nlohmann::json::parse(body, nullptr, /*allow_exceptions=*/false);
  const auto malformed = [] {
    return Error(absl::StatusCode::kFailedPrecondition, "BAD_LISTING",
                 "the server's answer is no list of files")
        .Hint("is HF_ENDPOINT a server with Hugging Face's layout?");
  };
  if (!json.is_object() || !json.contains("siblings") || !json["siblings"].is_array()) {
    return malformed();
  }
  Listing listing;
  if (const auto sha = json.find("sha"); sha != json.end() && sha->is_string()) {
    listing.commit = sha->get<std::string>();
    if (!listing.commit.empty() && !IsPlainName(listing.commit)) {
      return malformed();
    }
  }
  if (json["siblings"].size() > options.max_files) {
    return Error(absl::StatusCode::kResourceExhausted, "TOO_MANY_FILES",
                 "the repository has too many files")
        .Limit("max_files=" + std::to_string(options.max_files));
  }
  for (const auto& sibling : json["siblings"]) {
    if (!sibling.is_object() || !sibling.contains("rfilename") ||
        !sibling["rfilename"].is_string()) {
      return malformed();
    }
    listing.files.push_back(sibling["rfilename"].get<std::string>());
  }
  return listing;
}

absl::StatusOr<Listing> FetchListing(const PullOptions& options, const RedirectFollower& follower,
                                     PullObserver& observer) {
  const std::string url = options.endpoint + "/api/models/" + options.repository + "/revision/" +
                          PercentEncode(options.revision);
  ListingReceiver receiver(options, observer);
  Backoff backoff(options, observer);
  absl::Status status = follower.Get(url, receiver);
  while (status.code() == absl::StatusCode::kUnavailable && backoff.Again(false, 0)) {
    status = follower.Get(url, receiver);
  }
  if (observer.Cancelled()) {
    return CancelledTransfer();
  }
  RETURN_IF_ERROR(status);
  return ParseListing(receiver.body(), options);
}

bool IsPrintable(std::string_view text) {
  return std::all_of(text.begin(), text.end(), [](char c) { return c > ' ' && c < 0x7F; });
}

// Checks the options and fills in what follows from others.
absl::StatusOr<PullOptions> Checked(PullOptions options) {
  ASSIGN_OR_RETURN(const auto parts, SplitRepository(options.repository));
  if (options.name.empty()) {
    options.name = parts.second;
  }
  RETURN_IF_ERROR(CheckModelName(options.name));
  if (options.revision.empty() || options.revision.size() > 256 || !IsPrintable(options.revision)) {
    return Error(absl::StatusCode::kInvalidArgument, "BAD_REVISION",
                 "the revision is not the name of a branch, tag or commit");
  }
  if (!IsPrintable(options.token)) {
    return Error(absl::StatusCode::kInvalidArgument, "BAD_TOKEN",
                 "HF_TOKEN holds blanks or characters that no token has");
  }
  while (!options.endpoint.empty() && options.endpoint.back() == '/') {
    options.endpoint.pop_back();
  }
  return options;
}

class Pull {
 public:
  Pull(const PullOptions& options, const RedirectFollower& follower, PullObserver& observer)
      : options_(options), follower_(follower), observer_(observer) {}

  absl::StatusOr<PulledModel> Run() {
    const std::string target = options_.models_dir + "/" + options_.name;
    std::error_code ignored;
    if (std::filesystem::exists(std::filesystem::symlink_status(target, ignored))) {
      return Error(absl::StatusCode::kAlreadyExists, "MODEL_EXISTS", target + " exists already")
          .Hint("choose another --name; `strata model remove " + options_.name +
                "` deletes that one if it is registered, else `strata model add " +
                ShellWord(target) + " --name " + options_.name + "` registers it");
    }
    ASSIGN_OR_RETURN(const Listing listing, FetchListing(options_, follower_, observer_));
    ASSIGN_OR_RETURN(const std::vector<std::string> files, SelectFiles(listing.files));
    ASSIGN_OR_RETURN(const auto folder, PartialFolder::Open(options_.models_dir, options_.name,
                                                            options_.repository, listing.commit));
    progress_.files_total = files.size();
    PulledModel model = {target, listing.commit, {}};
    for (const std::string& file : files) {
      RETURN_IF_ERROR(FetchFile(*folder, file, listing.commit));
      const FileRecord& record = folder->Record(file);
      model.files.push_back({file, record.total_bytes, record.sha256, record.verified});
    }
    RETURN_IF_ERROR(folder->Commit(target));
    return model;
  }

 private:
  absl::Status FetchFile(PartialFolder& folder, const std::string& file,
                         const std::string& commit) {
    progress_.file = file;
    const uint64_t before = progress_.done_bytes;
    if (folder.Record(file).done) {
      Report(before, folder.Record(file).total_bytes, folder.Record(file).total_bytes);
    } else {
      // By commit, so that all files are of one state; some servers know names only.
      std::vector<std::string> urls;
      for (const std::string& revision : {commit, options_.revision}) {
        if (!revision.empty()) {
          urls.push_back(options_.endpoint + "/" + options_.repository + "/resolve/" +
                         PercentEncode(revision) + "/" + PercentEncode(file));
        }
      }
      FileTransfer transfer(
          options_, follower_, observer_, folder, file,
          [this, before](uint64_t done, uint64_t total) { Report(before, done, total); });
      RETURN_IF_ERROR(transfer.Run(urls));
    }
    ++progress_.files_done;
    observer_.OnProgress(progress_);
    return absl::OkStatus();
  }

  void Report(uint64_t before, uint64_t done, uint64_t total) {
    progress_.file_done_bytes = done;
    progress_.file_total_bytes = total;
    progress_.done_bytes = before + done;
    observer_.OnProgress(progress_);
  }

  const PullOptions& options_;
  const RedirectFollower& follower_;
  PullObserver& observer_;
  PullProgress progress_;
};

}  // namespace

void PullObserver::Wait(std::chrono::milliseconds time) {
  constexpr std::chrono::milliseconds kSlice(50);
  while (time.count() > 0 && !Cancelled()) {
    const auto slice = std::min(time, kSlice);
    std::this_thread::sleep_for(slice);
    time -= slice;
  }
}

absl::StatusOr<PulledModel> PullModel(const PullOptions& given, HttpTransport& transport,
                                      PullObserver& observer) {
  ASSIGN_OR_RETURN(const PullOptions options, Checked(given));
  ASSIGN_OR_RETURN(const Origin endpoint, OriginOf(options.endpoint));
  const RedirectFollower follower(transport, endpoint, options.token, options.max_redirects);
  return Pull(options, follower, observer).Run();
}

}  // namespace strata
