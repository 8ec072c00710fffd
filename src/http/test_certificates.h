// Certificates made on the spot, for tests of TLS.
#pragma once

#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/x509v3.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>

namespace baton::http {

// A folder with PEM files, removed at the end.
class TestCertificates {
 public:
  TestCertificates() {
    char name[] = "/tmp/baton_tls_XXXXXX";
    if (::mkdtemp(name) == nullptr) std::abort();
    folder_ = name;
  }
  ~TestCertificates() {
    std::error_code ignored;
    std::filesystem::remove_all(folder_, ignored);
  }
  TestCertificates(const TestCertificates&) = delete;
  TestCertificates& operator=(const TestCertificates&) = delete;

  std::string certificate(const std::string& name) const { return folder_ + "/" + name + ".crt"; }
  std::string key(const std::string& name) const { return folder_ + "/" + name + ".key"; }
  std::string file(const std::string& name, const std::string& content) const {
    std::ofstream(folder_ + "/" + name) << content;
    return folder_ + "/" + name;
  }

  // Writes <name>.crt and <name>.key, signed by `authority` of an earlier call or by itself; `names` as in "DNS:localhost,IP:127.0.0.1".
  // days < 0: expired.
  void make(const std::string& name, const std::string& authority, const std::string& names, int days = 30) const {
    const Key own(EVP_EC_gen("P-256"), EVP_PKEY_free);
    const Certificate made(X509_new(), X509_free);
    X509_set_version(made.get(), 2);
    ASN1_INTEGER_set_uint64(X509_get_serialNumber(made.get()), ++serial_);
    X509_gmtime_adj(X509_getm_notBefore(made.get()), -100L * 86400);
    X509_gmtime_adj(X509_getm_notAfter(made.get()), days * 86400L);
    X509_set_pubkey(made.get(), own.get());
    X509_NAME* subject = X509_get_subject_name(made.get());
    X509_NAME_add_entry_by_txt(subject, "CN", MBSTRING_ASC, reinterpret_cast<const unsigned char*>(name.c_str()), -1, -1, 0);
    const bool self = authority.empty();
    Key signing(nullptr, EVP_PKEY_free);
    Certificate issuer(nullptr, X509_free);
    if (!self) {
      signing.reset(read<EVP_PKEY>(key(authority), [](std::FILE* f) { return PEM_read_PrivateKey(f, nullptr, nullptr, nullptr); }));
      issuer.reset(read<X509>(certificate(authority), [](std::FILE* f) { return PEM_read_X509(f, nullptr, nullptr, nullptr); }));
    }
    X509* by = self ? made.get() : issuer.get();
    X509_set_issuer_name(made.get(), X509_get_subject_name(by));
    extend(made.get(), by, NID_basic_constraints, self ? "critical,CA:TRUE" : "CA:FALSE");
    if (!names.empty()) extend(made.get(), by, NID_subject_alt_name, names.c_str());
    X509_sign(made.get(), self ? own.get() : signing.get(), EVP_sha256());
    write(certificate(name), [&](std::FILE* f) { return PEM_write_X509(f, made.get()); });
    write(key(name), [&](std::FILE* f) { return PEM_write_PrivateKey(f, own.get(), nullptr, nullptr, 0, nullptr, nullptr); });
  }

 private:
  using Key = std::unique_ptr<EVP_PKEY, void (*)(EVP_PKEY*)>;
  using Certificate = std::unique_ptr<X509, void (*)(X509*)>;

  static void extend(X509* made, X509* by, int kind, const char* value) {
    X509V3_CTX context{};
    X509V3_set_ctx(&context, by, made, nullptr, nullptr, 0);
    X509_EXTENSION* extension = X509V3_EXT_conf_nid(nullptr, &context, kind, value);
    if (extension == nullptr) std::abort();
    X509_add_ext(made, extension, -1);
    X509_EXTENSION_free(extension);
  }
  template <class T, class Read>
  static T* read(const std::string& path, Read with) {
    std::FILE* file = std::fopen(path.c_str(), "r");
    if (file == nullptr) std::abort();
    T* result = with(file);
    std::fclose(file);
    return result;
  }
  template <class Write>
  static void write(const std::string& path, Write with) {
    std::FILE* file = std::fopen(path.c_str(), "w");
    if (file == nullptr || with(file) != 1) std::abort();
    std::fclose(file);
  }

  std::string folder_;
  mutable uint64_t serial_ = 0;
};

}  // namespace baton::http
