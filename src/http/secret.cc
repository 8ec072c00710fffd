#include "http/secret.h"

#include <fmt/format.h>

#include "base/file.h"

namespace baton::http {
namespace {

constexpr int64_t kMostSecretBytes = 4096;
constexpr size_t kLeastSecretBytes = 16;

}  // namespace

Result<std::string> read_secret(const std::string& file) {
  BATON_ASSIGN(std::string secret, read_file(file, kMostSecretBytes));
  while (!secret.empty() && (secret.back() == '\n' || secret.back() == '\r' || secret.back() == ' ')) secret.pop_back();
  for (const char c : secret)
    if (c <= ' ' || c >= 0x7F) return Error{.message = fmt::format("{}: the secret holds other than visible ASCII characters", file)};
  if (secret.size() < kLeastSecretBytes)
    return Error{.message = fmt::format("{}: the secret is shorter than {} characters; make one with: openssl rand -hex 32", file,
                                        kLeastSecretBytes)};
  return secret;
}

bool equal_secrets(std::string_view given, std::string_view secret) {
  unsigned different = given.size() == secret.size() ? 0 : 1;
  for (size_t i = 0; i < given.size(); ++i) {
    const char other = i < secret.size() ? secret[i] : '\0';
    different |= static_cast<unsigned>(static_cast<unsigned char>(given[i]) ^ static_cast<unsigned char>(other));
  }
  return different == 0;
}

}  // namespace baton::http
