// Who may use the server: keys of clients, known by their SHA-256.
//
// A key is compared by its hash, so neither the file nor the time of a comparison tells it.
#pragma once

#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/result.h"

namespace baton::server {

struct Tenant {
  std::string name;
  bool admin = false;
};

class ApiKeys {
 public:
  // `keys` as they are; `file`, which may be empty, has lines `name sha256-in-hex [admin]`, comments behind '#'.
  static Result<std::unique_ptr<ApiKeys>> load(const std::vector<std::string>& keys, const std::string& file);

  // Reads the file again; on an error the keys stay as they are. Any thread.
  Status reload();

  bool required() const;   // false: nobody needs one
  bool has_admin() const;  // some key is an administrator's
  std::optional<Tenant> find(std::string_view key) const;

 private:
  using Table = std::unordered_map<std::string, Tenant>;  // by hash, in hex
  Result<Table> read() const;

  std::vector<std::string> given_;
  std::string file_;
  mutable std::mutex mutex_;
  std::shared_ptr<const Table> table_;
};

// In hex.
std::string sha256(std::string_view text);

}  // namespace baton::server
