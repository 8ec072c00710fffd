#include "model/shard_set.h"

#include <map>
#include <string_view>
#include <system_error>
#include <unordered_map>

#include "model/json_fields.h"

namespace baton::model {
namespace {

constexpr int64_t kMaxIndexBytes = int64_t{256} << 20;
constexpr std::string_view kSingleFile = "model.safetensors";
constexpr std::string_view kIndexFile = "model.safetensors.index.json";

// Shard names come from a file: they may not lead out of the folder.
bool plain_file_name(std::string_view name) {
  return !name.empty() && name != "." && name != ".." && name.find('/') == std::string_view::npos &&
         name.find('\0') == std::string_view::npos;
}

bool present(const std::filesystem::path& path) {
  std::error_code failure;
  const auto status = std::filesystem::symlink_status(path, failure);
  return failure ? failure.value() != ENOENT : std::filesystem::exists(status);
}

// tensor -> file name, by the index.
std::unordered_map<std::string, std::string> read_index(const std::filesystem::path& path, Problems& problems) {
  std::unordered_map<std::string, std::string> where;
  const auto report = [&](const std::string& text) { problems.add("unusable index", text); };
  Result<std::string> text = read_regular_file(path, kMaxIndexBytes);
  if (!text.ok()) return report(text.error().message), where;
  const Result<boost::json::object> index = parse_json_object(*text, path.string());
  if (!index.ok()) return report(index.error().message), where;
  const boost::json::value* map = index->if_contains("weight_map");
  if (map == nullptr || !map->is_object()) return report(fmt::format("{}: weight_map is not an object", path.string())), where;
  for (const auto& [name, file] : map->get_object()) {
    if (!file.is_string() || !plain_file_name(std::string_view(file.get_string())))
      report(fmt::format("{}: {} maps to {}, the name of a file beside the index is expected", path.string(), std::string_view(name),
                         JsonFields::shortened(file)));
    else
      where.emplace(std::string_view(name), std::string_view(file.get_string()));
  }
  if (where.empty()) report(fmt::format("{}: weight_map names no tensor", path.string()));
  return where;
}

void open_shard(const std::filesystem::path& path, std::vector<Shard>& shards, Problems& problems) {
  Result<MappedFile> file = MappedFile::open(path);
  if (!file.ok()) return problems.add("unreadable files", file.error().message);
  Result<std::vector<SafetensorsTensor>> tensors = parse_safetensors(file->bytes(), path.string());
  if (!tensors.ok()) return problems.add_block("unsound files", tensors.error().message);
  shards.push_back({std::move(*file), std::move(*tensors)});
}

void compare_with_index(const std::vector<Shard>& shards, std::unordered_map<std::string, std::string> where, size_t files,
                        Problems& problems) {
  constexpr const char* kSort = "index and shards disagree";
  for (const Shard& shard : shards) {
    const std::string file = shard.file.path().filename().string();
    for (const SafetensorsTensor& t : shard.tensors) {
      const auto it = where.find(t.name);
      if (it == where.end())
        problems.add(kSort, fmt::format("{} is in {}, which the index does not say", t.name, file));
      else if (it->second != file)
        problems.add(kSort, fmt::format("{} is in {}, the index says {}", t.name, file, it->second));
      else
        where.erase(it);
    }
  }
  if (shards.size() < files) return;  // what the unreadable shards hold is unknown
  const std::map<std::string, std::string> left(where.begin(), where.end());
  for (const auto& [name, file] : left) problems.add(kSort, fmt::format("{} is not in {}, the index says it is", name, file));
}

}  // namespace

std::vector<Shard> open_shards(const std::filesystem::path& dir, Problems& problems) {
  std::vector<Shard> shards;
  const bool single = present(dir / kSingleFile);
  const bool indexed = present(dir / kIndexFile);
  if (single && indexed) {
    problems.add("ambiguous files",
                 fmt::format("{} holds both {} and {}: remove the one that is out of date", dir.string(), kSingleFile, kIndexFile));
  } else if (single) {
    open_shard(dir / kSingleFile, shards, problems);
  } else if (indexed) {
    std::unordered_map<std::string, std::string> where = read_index(dir / kIndexFile, problems);
    std::map<std::string, int64_t> files;  // in order of names, which is the order of a release
    for (const auto& [tensor, file] : where) ++files[file];
    for (const auto& [file, count] : files) open_shard(dir / file, shards, problems);
    if (!where.empty()) compare_with_index(shards, std::move(where), files.size(), problems);
  } else {
    problems.add("missing files", fmt::format("{} holds neither {} nor {}", dir.string(), kSingleFile, kIndexFile));
  }
  return shards;
}

}  // namespace baton::model
