#include "model/checkpoint.h"

#include <cstring>

namespace baton::model {
namespace {

// Some exports spell the parameters of the indexer's pooling like modules; they are kept under the released name.
std::string released_name(const std::string& name) {
  for (const std::string_view parameter : {".indexer.index_kpool_compress_gate", ".indexer.index_kpool_compress_ape"})
    if (name.ends_with(std::string(parameter) + ".weight")) return name.substr(0, name.size() - std::strlen(".weight"));
  return name;
}

}  // namespace

Result<Checkpoint> Checkpoint::open(const std::filesystem::path& dir) {
  Checkpoint checkpoint;
  BATON_ASSIGN(checkpoint.config_, load_config(dir));
  BATON_ASSIGN(checkpoint.set_, TensorSet::open(dir, expected_tensors(checkpoint.config_),
                                                {.skipped_prefix = "model.visual.", .expected_name = released_name}));
  return checkpoint;
}

}  // namespace baton::model
