#include "model/shard_writer.h"

#include <fmt/ranges.h>

#include <boost/json/object.hpp>
#include <map>

#include "model/json_text.h"
#include "model/safetensors.h"
#include "tensor/buffer.h"

namespace baton::model {
namespace {

// Tensor names of the architecture need no escapes.
std::string header_text(const std::vector<StoredTensor>& tensors, const std::vector<size_t>& members) {
  std::string json = R"({"__metadata__":{"format":"pt"})";
  int64_t begin = 0;
  for (const size_t i : members) {
    const StoredTensor& t = tensors[i];
    json += fmt::format(R"(,"{}":{{"dtype":"{}","shape":[{}],"data_offsets":[{},{}]}})", t.name, safetensors_dtype(t.dtype),
                        fmt::join(t.shape, ","), begin, begin + t.bytes());
    begin += t.bytes();
  }
  json += '}';
  json.resize(static_cast<size_t>(align_up(static_cast<int64_t>(json.size()), 8)), ' ');  // data then starts aligned
  std::string text(8, '\0');
  for (size_t i = 0; i < 8; ++i) text[i] = static_cast<char>(json.size() >> (8 * i));
  return text + json;
}

}  // namespace

std::vector<ShardPlan> plan_shards(const std::vector<StoredTensor>& tensors, int64_t shards) {
  int64_t total = 0;
  for (const StoredTensor& t : tensors) total += t.bytes();
  std::vector<ShardPlan> plan(static_cast<size_t>(shards));
  int64_t done = 0;
  size_t shard = 0;
  for (size_t i = 0; i < tensors.size(); ++i) {
    const auto left = static_cast<int64_t>(tensors.size() - i);
    const auto shards_after = shards - 1 - static_cast<int64_t>(shard);
    const bool full = done >= total / shards * static_cast<int64_t>(shard + 1);
    // The second condition leaves one tensor for each of the files to come.
    if (shards_after > 0 && !plan[shard].tensors.empty() && (full || left == shards_after)) ++shard;
    plan[shard].tensors.push_back(i);
    done += tensors[i].bytes();
  }
  for (size_t s = 0; s < plan.size(); ++s) {
    ShardPlan& p = plan[s];
    p.file = shards == 1 ? "model.safetensors" : fmt::format("model-{:05}-of-{:05}.safetensors", s + 1, shards);
    p.header = header_text(tensors, p.tensors);
    p.bytes = static_cast<int64_t>(p.header.size());
    for (const size_t i : p.tensors) {
      p.offset.push_back(p.bytes);
      p.bytes += tensors[i].bytes();
    }
  }
  return plan;
}

std::string index_json(const std::vector<StoredTensor>& tensors, const std::vector<ShardPlan>& shards) {
  int64_t total = 0;
  std::map<std::string_view, std::string_view> where;
  for (const ShardPlan& shard : shards)
    for (const size_t i : shard.tensors) {
      where[tensors[i].name] = shard.file;
      total += tensors[i].bytes();
    }
  boost::json::object map;
  for (const auto& [name, file] : where) map.emplace(name, file);
  boost::json::object index;
  index["metadata"] = boost::json::object{{"total_size", total}};
  index["weight_map"] = std::move(map);
  return pretty_json(std::move(index));
}

}  // namespace baton::model
