#include "load/presets.h"

#include <algorithm>

namespace baton::load {

const std::vector<Preset>& presets() {
  static const std::vector<Preset> all = {
      {"article-prefill", "64K in, 10 out, nothing shared, 2 at once", 0, 65'536, 10, 32, 2},
      {"article-decode", "64K in, 1K out, 99.9 % shared", 65'472, 64, 1024, 512, 132},
      {"article-3p1d-0", "64K in, 1K out, nothing shared", 0, 65'536, 1024, 256, 64},
      {"article-3p1d-50", "64K in, 1K out, 50 % shared", 32'768, 32'768, 1024, 256, 64},
      {"article-3p1d-93.75", "64K in, 1K out, 93.75 % shared", 61'440, 4096, 1024, 512, 132},
      {"small-prefill", "2K in, 10 out, nothing shared, 2 at once", 0, 2048, 10, 16, 2},
      {"small-decode", "2K in, 32 out, 99.2 % shared", 2032, 16, 32, 32, 8},
      {"small-3p1d-0", "2K in, 32 out, nothing shared", 0, 2048, 32, 16, 4},
      {"small-3p1d-50", "2K in, 32 out, 50 % shared", 1024, 1024, 32, 16, 4},
      {"small-3p1d-93.75", "2K in, 32 out, 93.75 % shared", 1920, 128, 32, 32, 8},
  };
  return all;
}

const Preset* find_preset(const std::string& name) {
  const auto found = std::find_if(presets().begin(), presets().end(), [&](const Preset& p) { return name == p.name; });
  return found != presets().end() ? &*found : nullptr;
}

SharedPrefixOptions load_of(const Preset& p, int64_t prompts, uint64_t seed) {
  return {.groups = 1, .per_group = prompts, .prefix = p.shared, .question = p.own, .output = p.output, .seed = seed};
}

Objective article_objective() {
  Objective o;
  o.name = "article";
  o.ttft_s = 6;
  o.tpot_s = 0.025;
  o.of_means = true;
  return o;
}

}  // namespace baton::load
