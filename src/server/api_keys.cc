#include "server/api_keys.h"

#include <fmt/format.h>
#include <openssl/evp.h>

#include <algorithm>
#include <cctype>

#include "base/check.h"
#include "base/file.h"

namespace baton::server {
namespace {

std::string_view next_word(std::string_view& line) {
  const size_t begin = line.find_first_not_of(" \t\r");
  if (begin == std::string_view::npos) return line = {};
  const size_t end = std::min(line.find_first_of(" \t\r", begin), line.size());
  const std::string_view word = line.substr(begin, end - begin);
  line.remove_prefix(end);
  return word;
}

bool is_hash(std::string_view text) {
  return text.size() == 64 &&
         std::all_of(text.begin(), text.end(), [](char c) { return std::isxdigit(static_cast<unsigned char>(c)) != 0; });
}

}  // namespace

std::string sha256(std::string_view text) {
  unsigned char digest[EVP_MAX_MD_SIZE];
  unsigned length = 0;
  BATON_CHECK(EVP_Digest(text.data(), text.size(), digest, &length, EVP_sha256(), nullptr) == 1);
  std::string out;
  for (unsigned i = 0; i < length; ++i) fmt::format_to(std::back_inserter(out), "{:02x}", digest[i]);
  return out;
}

Result<std::unique_ptr<ApiKeys>> ApiKeys::load(const std::vector<std::string>& keys, const std::string& file) {
  std::unique_ptr<ApiKeys> out(new ApiKeys());
  out->given_ = keys;
  out->file_ = file;
  BATON_TRY(out->reload());
  return out;
}

Status ApiKeys::reload() {
  BATON_ASSIGN(Table table, read());
  const std::lock_guard lock(mutex_);
  table_ = std::make_shared<const Table>(std::move(table));
  return {};
}

Result<ApiKeys::Table> ApiKeys::read() const {
  Table table;
  for (const std::string& key : given_) table.emplace(sha256(key), Tenant{});
  if (file_.empty()) return table;
  constexpr int64_t kMostFileBytes = int64_t{16} << 20;
  BATON_ASSIGN(const std::string text, read_file(file_, kMostFileBytes));
  size_t number = 0;
  for (size_t begin = 0; begin < text.size();) {
    ++number;
    const size_t end = std::min(text.find('\n', begin), text.size());
    std::string_view line = std::string_view(text).substr(begin, end - begin);
    begin = end + 1;
    line = line.substr(0, line.find('#'));
    const std::string_view name = next_word(line);
    if (name.empty()) continue;
    std::string hash(next_word(line));
    const std::string_view role = next_word(line);
    if (!is_hash(hash) || (!role.empty() && role != "admin") || !next_word(line).empty())
      return Error{Error::Kind::kInvalid,
                   fmt::format("{}:{}: `name sha256-of-the-key [admin]` is expected; printf %s KEY | sha256sum makes the middle part",
                               file_, number)};
    std::transform(hash.begin(), hash.end(), hash.begin(),
                   [](char c) { return static_cast<char>(std::tolower(static_cast<unsigned char>(c))); });
    if (!table.emplace(hash, Tenant{std::string(name), role == "admin"}).second)
      return Error{Error::Kind::kInvalid, fmt::format("{}:{}: the key of {} is there already", file_, number, name)};
  }
  if (table.empty())
    return Error{Error::Kind::kInvalid,
                 fmt::format("{} holds no key, so nobody could use the server; leave --api-key-file out for an open one", file_)};
  return table;
}

bool ApiKeys::required() const {
  const std::lock_guard lock(mutex_);
  return !table_->empty();
}

bool ApiKeys::has_admin() const {
  std::shared_ptr<const Table> table;
  {
    const std::lock_guard lock(mutex_);
    table = table_;
  }
  return std::any_of(table->begin(), table->end(), [](const auto& entry) { return entry.second.admin; });
}

std::optional<Tenant> ApiKeys::find(std::string_view key) const {
  std::shared_ptr<const Table> table;
  {
    const std::lock_guard lock(mutex_);
    table = table_;
  }
  const auto found = table->find(sha256(key));
  if (found == table->end()) return std::nullopt;
  return found->second;
}

}  // namespace baton::server
