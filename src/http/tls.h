// TLS contexts from PEM files, for both ends. OpenSSL stays behind it.
#pragma once

#include <memory>
#include <string>

#include "base/result.h"
#include "http/listener.h"

struct ssl_st;      // OpenSSL's SSL
struct ssl_ctx_st;  // SSL_CTX

namespace baton::http {

struct TlsFree {
  void operator()(ssl_st* channel) const;
};
using TlsChannel = std::unique_ptr<ssl_st, TlsFree>;

struct ClientTls {
  std::string ca_file = {};      // of those who may sign the server's certificate; empty: those that the system trusts
  bool verify = true;            // false: any server is believed
  std::string certificate = {};  // for servers that ask for one, with its key
  std::string key = {};
};

// Thread-safe once made: channels may be opened from any thread and may outlive it.
class TlsContext {
 public:
  static Result<std::shared_ptr<const TlsContext>> for_server(const TlsFiles& files);
  static Result<std::shared_ptr<const TlsContext>> for_client(const ClientTls& options);
  ~TlsContext();
  TlsContext(const TlsContext&) = delete;
  TlsContext& operator=(const TlsContext&) = delete;

  TlsChannel accept() const;
  // `host` is who the server must prove to be: a name or an address.
  TlsChannel connect(const std::string& host) const;

 private:
  explicit TlsContext(ssl_ctx_st* context) : context_(context) {}
  ssl_ctx_st* context_;
  bool verify_ = false;
};

// What OpenSSL says of the failure of the last call on this thread, or `otherwise`.
std::string last_tls_error(const std::string& otherwise);
// Why the certificate of the other end was not believed, or empty.
std::string certificate_problem(const ssl_st* channel);

}  // namespace baton::http
