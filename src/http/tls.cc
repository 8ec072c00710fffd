#include "http/tls.h"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>

#include <system_error>

#include "base/check.h"

namespace baton::http {

namespace {

Error tls_error(const std::string& what, const std::string& file, const std::string& todo) {
  return {.message = fmt::format("{} '{}': {}. {}", what, file, last_tls_error("it holds none"), todo)};
}

// A key with a pass phrase is refused instead of asking on the terminal.
int no_pass_phrase(char*, int, int, void*) { return 0; }

Status use_certificate(SSL_CTX* context, const std::string& certificate, const std::string& key) {
  SSL_CTX_set_default_passwd_cb(context, no_pass_phrase);
  if (SSL_CTX_use_certificate_chain_file(context, certificate.c_str()) != 1)
    return tls_error("Cannot use the certificate", certificate, "Give a readable PEM file with the certificate first, then its chain.");
  if (SSL_CTX_use_PrivateKey_file(context, key.c_str(), SSL_FILETYPE_PEM) != 1)
    return tls_error("Cannot use the private key", key, "Give a readable PEM file without a pass phrase that belongs to the certificate.");
  if (SSL_CTX_check_private_key(context) != 1)
    return tls_error("The private key does not belong to the certificate; key", key, "Give the two that were made together.");
  return Status();
}

int choose_protocol(SSL*, const unsigned char** out, unsigned char* out_length, const unsigned char* in, unsigned in_length, void*) {
  static constexpr unsigned char kOurs[] = "\x08http/1.1";
  unsigned char* chosen = nullptr;
  if (SSL_select_next_proto(&chosen, out_length, kOurs, sizeof kOurs - 1, in, in_length) != OPENSSL_NPN_NEGOTIATED)
    return SSL_TLSEXT_ERR_NOACK;
  *out = chosen;
  return SSL_TLSEXT_ERR_OK;
}

void settle(SSL_CTX* context) {
  SSL_CTX_set_min_proto_version(context, TLS1_2_VERSION);
  SSL_CTX_set_options(context, SSL_OP_NO_RENEGOTIATION | SSL_OP_NO_COMPRESSION);
  // Buffers of idle channels are given back; writes may be partial and may be repeated from another place in memory.
  SSL_CTX_set_mode(context, SSL_MODE_RELEASE_BUFFERS | SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER);
}

}  // namespace

std::string last_tls_error(const std::string& otherwise) {
  const unsigned long code = ERR_peek_error();  // the first of them is nearest to the cause
  ERR_clear_error();
  if (code == 0) return otherwise;
  if (ERR_SYSTEM_ERROR(code)) return std::generic_category().message(ERR_GET_REASON(code));
  const char* reason = ERR_reason_error_string(code);
  return reason != nullptr ? reason : fmt::format("OpenSSL error {:x}", code);
}

std::string certificate_problem(const ssl_st* channel) {
  const long result = SSL_get_verify_result(channel);
  return result == X509_V_OK ? std::string() : X509_verify_cert_error_string(result);
}

void TlsFree::operator()(ssl_st* channel) const { SSL_free(channel); }

TlsContext::~TlsContext() { SSL_CTX_free(context_); }

Result<std::shared_ptr<const TlsContext>> TlsContext::for_server(const TlsFiles& files) {
  ERR_clear_error();
  SSL_CTX* raw = SSL_CTX_new(TLS_server_method());
  BATON_CHECK(raw != nullptr);
  const std::shared_ptr<const TlsContext> context(new TlsContext(raw));
  settle(raw);
  SSL_CTX_set_alpn_select_cb(raw, choose_protocol, nullptr);
  // Without a name for its channels a server that asks for certificates cannot resume any.
  static constexpr unsigned char kName[] = "baton";
  SSL_CTX_set_session_id_context(raw, kName, sizeof kName - 1);
  BATON_TRY(use_certificate(raw, files.certificate, files.key));
  if (!files.client_ca.empty()) {
    auto* names = SSL_load_client_CA_file(files.client_ca.c_str());
    if (names == nullptr || SSL_CTX_load_verify_file(raw, files.client_ca.c_str()) != 1)
      return tls_error("Cannot use the certificates of client authorities", files.client_ca, "Give a readable PEM file with at least one.");
    SSL_CTX_set_client_CA_list(raw, names);
    SSL_CTX_set_verify(raw, SSL_VERIFY_PEER | SSL_VERIFY_FAIL_IF_NO_PEER_CERT, nullptr);
  }
  return context;
}

Result<std::shared_ptr<const TlsContext>> TlsContext::for_client(const ClientTls& options) {
  ERR_clear_error();
  SSL_CTX* raw = SSL_CTX_new(TLS_client_method());
  BATON_CHECK(raw != nullptr);
  const std::shared_ptr<TlsContext> context(new TlsContext(raw));
  settle(raw);
  if (!options.ca_file.empty()) {
    if (SSL_CTX_load_verify_file(raw, options.ca_file.c_str()) != 1)
      return tls_error("Cannot use the certificates of authorities", options.ca_file, "Give a readable PEM file with at least one.");
  } else {
    SSL_CTX_set_default_verify_paths(raw);
  }
  context->verify_ = options.verify;
  if (options.verify) SSL_CTX_set_verify(raw, SSL_VERIFY_PEER, nullptr);
  if (!options.certificate.empty()) BATON_TRY(use_certificate(raw, options.certificate, options.key));
  return std::shared_ptr<const TlsContext>(context);
}

TlsChannel TlsContext::accept() const {
  TlsChannel channel(SSL_new(context_));
  BATON_CHECK(channel != nullptr);
  SSL_set_accept_state(channel.get());
  return channel;
}

TlsChannel TlsContext::connect(const std::string& host) const {
  TlsChannel channel(SSL_new(context_));
  BATON_CHECK(channel != nullptr);
  SSL_set_connect_state(channel.get());
  unsigned char address[16];
  const bool numeric = inet_pton(AF_INET, host.c_str(), address) == 1 || inet_pton(AF_INET6, host.c_str(), address) == 1;
  if (!numeric) SSL_ctrl(channel.get(), SSL_CTRL_SET_TLSEXT_HOSTNAME, TLSEXT_NAMETYPE_host_name, const_cast<char*>(host.c_str()));
  if (verify_) {
    if (numeric) {
      X509_VERIFY_PARAM_set1_ip_asc(SSL_get0_param(channel.get()), host.c_str());
    } else {
      SSL_set1_host(channel.get(), host.c_str());
    }
  }
  return channel;
}

}  // namespace baton::http
