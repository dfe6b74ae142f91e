// OpenSSL's objects, each with one owner.
#ifndef STRATA_COMMON_CERTIFICATES_OPENSSL_OWNED_H_
#define STRATA_COMMON_CERTIFICATES_OPENSSL_OWNED_H_

#include <openssl/bio.h>
#include <openssl/evp.h>
#include <openssl/ssl.h>
#include <openssl/x509.h>
#include <openssl/x509v3.h>

#include <memory>

namespace strata::openssl {

struct Free {
  void operator()(ASN1_OCTET_STRING* p) const { ASN1_OCTET_STRING_free(p); }
  void operator()(BIGNUM* p) const { BN_free(p); }
  void operator()(BIO* p) const { BIO_free(p); }
  void operator()(EVP_PKEY* p) const { EVP_PKEY_free(p); }
  void operator()(SSL* p) const { SSL_free(p); }
  void operator()(SSL_CTX* p) const { SSL_CTX_free(p); }
  void operator()(STACK_OF(X509) * p) const { sk_X509_free(p); }  // Not what is in it.
  void operator()(X509* p) const { X509_free(p); }
  void operator()(X509_EXTENSION* p) const { X509_EXTENSION_free(p); }
  void operator()(X509_NAME* p) const { X509_NAME_free(p); }
  void operator()(X509_REQ* p) const { X509_REQ_free(p); }
  void operator()(X509_STORE* p) const { X509_STORE_free(p); }
  void operator()(X509_STORE_CTX* p) const { X509_STORE_CTX_free(p); }
};
template <typename T>
using Owned = std::unique_ptr<T, Free>;

}  // namespace strata::openssl

#endif  // STRATA_COMMON_CERTIFICATES_OPENSSL_OWNED_H_
