#include "common/joining/certificate_keeper.h"

#include <grpcpp/channel.h>
#include <grpcpp/client_context.h>

#include <algorithm>
#include <ctime>
#include <optional>
#include <utility>
#include <vector>

#include "common/certificates/authority.h"
#include "common/certificates/renewal.h"
#include "common/certificates/tls_folder.h"
#include "common/platform/platform.h"
#include "common/rpc/status.h"
#include "common/rpc/tls_files.h"
#include "common/status.h"
#include "strata/v1/certificates.grpc.pb.h"

namespace strata {
namespace {

constexpr std::chrono::seconds kAnswerTime{5};
// After a renewal, until the new files are taken; after failures more and more, up to a minute.
constexpr int64_t kFirstPauseS = 5;
constexpr int64_t kLongestPauseS = 60;

class CoordinatorSource : public CertificateSource {
 public:
  CoordinatorSource(Transport transport, std::string address)
      : transport_(std::move(transport)), address_(std::move(address)) {}

  absl::StatusOr<v1::Trust> GetTrust(const v1::GetTrustRequest& request) override {
    Connect();
    grpc::ClientContext context;
    context.set_deadline(std::chrono::system_clock::now() + kAnswerTime);
    v1::Trust trust;
    RETURN_IF_ERROR(FromGrpc(stub_->GetTrust(&context, request, &trust)));
    return trust;
  }

  absl::StatusOr<v1::RenewCertificateResponse> Renew(
      const v1::RenewCertificateRequest& request) override {
    Connect();
    grpc::ClientContext context;
    context.set_deadline(std::chrono::system_clock::now() + kAnswerTime);
    v1::RenewCertificateResponse response;
    RETURN_IF_ERROR(FromGrpc(stub_->RenewCertificate(&context, request, &response)));
    return response;
  }

 private:
  // By the certificate in use, which the coordinator is to see.
  void Connect() {
    auto files = transport_.tls();
    if (stub_ == nullptr || files != files_) {
      files_ = std::move(files);
      stub_ = v1::CertificateService::NewStub(transport_.MakeChannel(address_));
    }
  }

  const Transport transport_;
  const std::string address_;
  std::shared_ptr<const TlsFiles> files_;
  std::unique_ptr<v1::CertificateService::Stub> stub_;
};

bool SameCertificates(std::string_view a, std::string_view b) {
  std::vector<std::string> of_a = CertificateFingerprints(a);
  std::vector<std::string> of_b = CertificateFingerprints(b);
  std::sort(of_a.begin(), of_a.end());
  std::sort(of_b.begin(), of_b.end());
  return of_a == of_b;
}

}  // namespace

std::unique_ptr<CertificateSource> CoordinatorAsSource(Transport transport, std::string address) {
  return std::make_unique<CoordinatorSource>(std::move(transport), std::move(address));
}

bool WantsRenewal(const TlsFiles& files, const v1::Trust& trust, int64_t renew_before_s,
                  int64_t now_s) {
  if (!files.holder.has_value() || trust.authorities().empty()) {
    return false;
  }
  return RenewalIsDue(files.term, renew_before_s, now_s) ||
         !SameCertificates(files.ca, trust.authorities()) ||
         // The one that signs is first.
         !IsIssuedBy(files.cert, trust.authorities());
}

absl::Status RenewFiles(const TlsFiles& files, const std::string& folder,
                        CertificateSource* source) {
  TlsFolder made;
  ASSIGN_OR_RETURN(made.own.key, MakePrivateKey());
  v1::RenewCertificateRequest request;
  ASSIGN_OR_RETURN(*request.mutable_certificate_request(), MakeCertificateRequest(made.own.key));
  ASSIGN_OR_RETURN(v1::RenewCertificateResponse response, source->Renew(request));
  const std::string whose = "the renewed certificate";
  RETURN_IF_ERROR(CheckPeerCertificate(response.authorities(), response.certificate(), "", whose));
  ASSIGN_OR_RETURN(const CertificateHolder holder, HolderOf(response.certificate()));
  ASSIGN_OR_RETURN(const std::string key, CertificateKeyDigest(response.certificate()));
  ASSIGN_OR_RETURN(const std::string own_key, RequestKeyDigest(request.certificate_request()));
  if (holder != files.holder || key != own_key ||
      CertificateHosts(response.certificate()) != CertificateHosts(files.cert)) {
    return Error(absl::StatusCode::kInternal, "TLS_BAD_ANSWER",
                 whose + " has another key, holder or hosts than the one before");
  }
  made.ca = std::move(*response.mutable_authorities());
  made.own.cert = std::move(*response.mutable_certificate());
  return WriteTlsFolder(folder, made, {.group = std::nullopt, .replace_copy = true});
}

CertificateKeeper::CertificateKeeper(CertificateKeeperOptions options,
                                     std::shared_ptr<LiveTls> live,
                                     std::unique_ptr<CertificateSource> source)
    : options_(std::move(options)), live_(std::move(live)), source_(std::move(source)) {}

CertificateKeeper::~CertificateKeeper() {
  {
    MutexLock lock(&mutex_);
    stopping_ = true;
    changed_.NotifyAll();
  }
  if (thread_.joinable()) {
    thread_.join();
  }
}

void CertificateKeeper::Start() {
  thread_ = std::thread([this] {
    NameThread("strata-certs");
    do {
      KeepOnce(std::time(nullptr));
    } while (!WaitForStop());
  });
}

bool CertificateKeeper::WaitForStop() {
  MutexLock lock(&mutex_);
  if (!stopping_) {
    changed_.WaitFor(&mutex_, options_.ask_every);
  }
  return stopping_;
}

void CertificateKeeper::KeepOnce(int64_t now_s) {
  const auto files = live_->files();
  v1::GetTrustRequest request;
  request.set_node(options_.node);
  for (const std::string& one : CertificateFingerprints(files->ca)) {
    request.add_trusted_sha256(one);
  }
  const auto trust = source_->GetTrust(request);
  if (trust.ok() && options_.on_trust) {
    options_.on_trust(*trust);
  }
  if (!live_->following() || now_s < not_before_s_) {
    return;
  }
  // That the coordinator does not answer matters once something is to be renewed.
  const bool wants = trust.ok() ? WantsRenewal(*files, *trust, options_.renew_before_s, now_s)
                                : files->holder.has_value() &&
                                      RenewalIsDue(files->term, options_.renew_before_s, now_s);
  if (!wants) {
    return;
  }
  const absl::Status status =
      trust.ok() ? RenewFiles(*files, live_->options().renewed_dir, source_.get()) : trust.status();
  pause_s_ = status.ok() ? kFirstPauseS : std::clamp(2 * pause_s_, kFirstPauseS, kLongestPauseS);
  not_before_s_ = now_s + pause_s_;
  const std::string said = status.ok() ? "" : Describe(status);
  if (!said.empty() && said != last_told_ && options_.on_failed) {
    options_.on_failed(status);
  }
  last_told_ = said;
}

}  // namespace strata
