#include "worker/ranks/sockets/rank_tls.h"

#include <openssl/bio.h>
#include <openssl/crypto.h>
#include <openssl/err.h>
#include <openssl/ssl.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "common/check.h"
#include "common/status.h"

namespace strata {
namespace {

// Both ends mean the same key, whatever its name.
constexpr char kIdentity[] = "strata-rank";

// OpenSSL's way to the channel below.
int WriteBelow(BIO* bio, const char* bytes, int size) {
  BIO_clear_retry_flags(bio);
  auto* const channel = static_cast<RankChannel*>(BIO_get_data(bio));
  const absl::StatusOr<size_t> sent = channel->Send(
      {reinterpret_cast<const uint8_t*>(bytes), static_cast<size_t>(std::max(size, 0))});
  if (!sent.ok()) {
    return -1;
  }
  if (*sent == 0) {
    BIO_set_retry_write(bio);
    return -1;
  }
  return static_cast<int>(*sent);
}

int ReadBelow(BIO* bio, char* bytes, int size) {
  BIO_clear_retry_flags(bio);
  auto* const channel = static_cast<RankChannel*>(BIO_get_data(bio));
  const absl::StatusOr<size_t> got =
      channel->Receive({reinterpret_cast<uint8_t*>(bytes), static_cast<size_t>(std::max(size, 0))});
  if (!got.ok()) {
    return 0;
  }
  if (*got == 0) {
    BIO_set_retry_read(bio);
    return -1;
  }
  return static_cast<int>(*got);
}

long ControlBelow(BIO* /*bio*/, int command, long /*number*/, void* /*pointer*/) {
  return command == BIO_CTRL_FLUSH ? 1 : 0;
}

int CreateBelow(BIO* bio) {
  BIO_set_init(bio, 1);
  return 1;
}

const BIO_METHOD* Below() {
  static BIO_METHOD* const method = [] {
    BIO_METHOD* const made =
        BIO_meth_new(BIO_get_new_index() | BIO_TYPE_SOURCE_SINK, "channel between ranks");
    STRATA_CHECK(made != nullptr);
    BIO_meth_set_write(made, &WriteBelow);
    BIO_meth_set_read(made, &ReadBelow);
    BIO_meth_set_ctrl(made, &ControlBelow);
    BIO_meth_set_create(made, &CreateBelow);
    return made;
  }();
  return method;
}

unsigned int CopyKey(const SSL* ssl, unsigned char* key, unsigned int size) {
  const auto* const secret = static_cast<const RankSecret*>(SSL_get_app_data(ssl));
  if (secret == nullptr || size < secret->size()) {
    return 0;
  }
  std::copy(secret->begin(), secret->end(), key);
  return static_cast<unsigned int>(secret->size());
}

unsigned int KeyOfDialling(SSL* ssl, const char* /*hint*/, char* identity,
                           unsigned int identity_size, unsigned char* key, unsigned int size) {
  if (identity_size < sizeof(kIdentity)) {
    return 0;
  }
  std::memcpy(identity, kIdentity, sizeof(kIdentity));
  return CopyKey(ssl, key, size);
}

unsigned int KeyOfDialled(SSL* ssl, const char* identity, unsigned char* key, unsigned int size) {
  return std::strcmp(identity, kIdentity) == 0 ? CopyKey(ssl, key, size) : 0;
}

SSL_CTX* Context() {
  static SSL_CTX* const context = [] {
    SSL_CTX* const made = SSL_CTX_new(TLS_method());
    STRATA_CHECK(made != nullptr);
    // Of the cipher suites with this hash such a key is.
    STRATA_CHECK(SSL_CTX_set_min_proto_version(made, TLS1_3_VERSION) == 1 &&
                 SSL_CTX_set_ciphersuites(made, "TLS_AES_128_GCM_SHA256") == 1);
    SSL_CTX_set_psk_client_callback(made, &KeyOfDialling);
    SSL_CTX_set_psk_server_callback(made, &KeyOfDialled);
    // Each epoch has another key.
    SSL_CTX_set_session_cache_mode(made, SSL_SESS_CACHE_OFF);
    SSL_CTX_set_num_tickets(made, 0);
    SSL_CTX_set_mode(made, SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER);
    return made;
  }();
  return context;
}

absl::Status Gone(const std::string& why) {
  return Error(absl::StatusCode::kUnavailable, "RANK_GONE", "its connection ended: " + why);
}

// What OpenSSL said last, for people.
std::string LastError() {
  const char* const why = ERR_reason_error_string(ERR_peek_last_error());
  return why == nullptr ? "it was closed" : why;
}

}  // namespace

RankTls::RankTls(std::unique_ptr<RankChannel> inner, const RankSecret& secret, Side side)
    : inner_(std::move(inner)), secret_(secret), ssl_(SSL_new(Context())) {
  STRATA_CHECK(ssl_ != nullptr);
  SSL_set_app_data(ssl_.get(), &secret_);
  BIO* const below = BIO_new(Below());
  STRATA_CHECK(below != nullptr);
  BIO_set_data(below, inner_.get());
  SSL_set_bio(ssl_.get(), below, below);  // Which owns it.
  if (side == Side::kDials) {
    SSL_set_connect_state(ssl_.get());
  } else {
    SSL_set_accept_state(ssl_.get());
  }
}

RankTls::~RankTls() { OPENSSL_cleanse(secret_.data(), secret_.size()); }

absl::StatusOr<bool> RankTls::Handshake() {
  ERR_clear_error();
  const int rc = SSL_do_handshake(ssl_.get());
  if (rc == 1) {
    return true;
  }
  const int error = SSL_get_error(ssl_.get(), rc);
  if (error == SSL_ERROR_WANT_READ || error == SSL_ERROR_WANT_WRITE) {
    return false;
  }
  return Error(absl::StatusCode::kUnauthenticated, kRankHelloRefused,
               "a connection between ranks has no TLS by the secret of the epoch: " + LastError());
}

absl::StatusOr<size_t> RankTls::Moved(int rc, size_t moved) {
  if (rc == 1) {
    return moved;
  }
  switch (SSL_get_error(ssl_.get(), rc)) {
    case SSL_ERROR_WANT_READ:
    case SSL_ERROR_WANT_WRITE:
      return size_t{0};
    case SSL_ERROR_ZERO_RETURN:
      return Gone("the other end sends nothing more");
    default:
      return Gone(LastError());
  }
}

absl::StatusOr<size_t> RankTls::Send(std::span<const uint8_t> bytes) {
  if (bytes.empty() || SSL_is_init_finished(ssl_.get()) == 0) {
    return size_t{0};
  }
  ERR_clear_error();
  size_t sent = 0;
  const int rc = SSL_write_ex(ssl_.get(), bytes.data(), bytes.size(), &sent);
  return Moved(rc, sent);
}

absl::StatusOr<size_t> RankTls::Receive(std::span<uint8_t> out) {
  if (out.empty() || SSL_is_init_finished(ssl_.get()) == 0) {
    return size_t{0};
  }
  ERR_clear_error();
  size_t got = 0;
  const int rc = SSL_read_ex(ssl_.get(), out.data(), out.size(), &got);
  return Moved(rc, got);
}

void RankTls::EndSending() {
  if (SSL_is_init_finished(ssl_.get()) != 0) {
    ERR_clear_error();
    (void)SSL_shutdown(ssl_.get());
  }
  inner_->EndSending();
}

}  // namespace strata
