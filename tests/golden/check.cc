#include "golden/check.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <stdexcept>

#include "golden/recorder.h"
#include "model/sequence_runner.h"
#include "ops/cpu/backend.h"
#include "ops/cuda/open.h"

namespace baton::golden {
namespace {

// Of a prompt with choices closer than float noise (clear_of_ties false), the golden values are one of several right answers: if the stored
// choices agree, single positions in between may still have gone another way, so the medians are judged; if they differ, nothing can be.
enum class Judgement { kAll, kMedians, kNothing };

class Checker {
 public:
  Checker(const Folder& folder, const CheckOptions& options, model::SequenceRunner& runner)
      : folder_(folder), options_(options), runner_(runner), config_(runner.model().config()) {}

  Report run() {
    for (prompt_ = 0; prompt_ < folder_.prompt_count(); ++prompt_) prompt(prompt_);
    const char* mode = options_.mode == Mode::kFp32 ? "fp32" : options_.mode == Mode::kBf16 ? "bf16" : "fp8_act";
    for (const auto& [kind, tolerance] : folder_.tolerances(mode)) report_.set_tolerance(kind, tolerance);
    return std::move(report_);
  }

 private:
  // positions: of the rows, where rows are tokens; those that a near-tie sent another way before layer `layers_done` count in the median
  // alone.
  void compare(const std::string& kind, const std::string& key, const std::vector<float>& x, const std::vector<int32_t>& positions = {},
               int64_t layers_done = 0) {
    const std::vector<float> golden = folder_.floats(key);
    const int64_t rows = folder_.shape(key).empty() ? 1 : folder_.shape(key)[0];
    if (!positions.empty() && rows != static_cast<int64_t>(positions.size()))
      throw std::runtime_error(fmt::format("{} has {} rows for {} positions", key, rows, positions.size()));
    if (x.size() != golden.size()) {
      fmt::print("{}: {} values, golden has {}\n", key, x.size(), golden.size());
      report_.add(kind, prompt_, {1e30, 1e30, 1e30});
      return;
    }
    std::vector<bool> tied;
    for (const int32_t p : positions) tied.push_back(first_tie_.contains(p) && first_tie_.at(p) < layers_done);
    Measures m{};
    if (!golden.empty()) {
      const int64_t width = static_cast<int64_t>(golden.size()) / rows;
      m = options_.mode == Mode::kFp8Act ? measure_e4m3(kind, x, golden, rows, width) : measure(x.data(), golden.data(), rows, width, tied);
    }
    if (judgement_ != Judgement::kAll) m[0] = m[1] = 0;
    if (judgement_ == Judgement::kNothing) m[2] = 0;
    report_.add(kind, prompt_, m);
  }

  // Where an input lies on a rounding tie of e4m3 its value moves by a step, 1/16 of it, and with it its row and rows behind that attend to
  // it. Rows before it stay sharp, while an error of the arithmetic spares none. So when some rows of a layer meet the tolerance (at least
  // a quarter) and the others are off by no more than a step, the former are judged as they are, and the layers behind, for this prompt, at
  // the width of a step.
  Measures measure_e4m3(const std::string& kind, const std::vector<float>& x, const std::vector<float>& golden, int64_t rows,
                        int64_t width) {
    constexpr double kStep = 1.0 / 16;
    const auto& tolerances = folder_.tolerances("fp8_act");
    const auto tolerance = tolerances.find(kind);
    const Measures whole = measure(x.data(), golden.data(), rows, width);
    if (tolerance == tolerances.end()) return whole;
    const auto within = [](const Measures& m, const Measures& limit) { return m[0] <= limit[0] && m[1] <= limit[1] && m[2] <= limit[2]; };
    if (within(whole, tolerance->second)) return whole;
    const Measures step = {2 * kStep, kStep, kStep};
    if (e4m3_tie_) return within(whole, step) ? Measures{} : whole;
    std::vector<float> kept;
    std::vector<float> kept_golden;
    int64_t outliers = 0;
    for (int64_t r = 0; r < rows; ++r) {
      const float* row = x.data() + r * width;
      const float* golden_row = golden.data() + r * width;
      const Measures one = measure(row, golden_row, 1, width);
      if (one[1] > tolerance->second[2] && one[1] <= kStep) {
        ++outliers;
        continue;
      }
      kept.insert(kept.end(), row, row + width);
      kept_golden.insert(kept_golden.end(), golden_row, golden_row + width);
    }
    if (outliers == 0 || outliers * 4 > rows * 3) return whole;
    e4m3_tie_ = true;
    report_.note(fmt::format("prompt {}: an e4m3 tie moves {} of {} rows of {}; what follows it is judged at the width of a step", prompt_,
                             outliers, rows, kind));
    return measure(kept.data(), kept_golden.data(), rows - outliers, width);
  }

  void prompt(int i) {
    e4m3_tie_ = false;
    const std::string p = fmt::format("p{}.", i);
    const std::string q = options_.mode == Mode::kFp8Act ? "q." : "";
    const std::vector<int32_t> ids = folder_.ints(p + "ids");
    const std::vector<int32_t> pos = folder_.ints(p + "pos");
    const auto n = static_cast<int64_t>(ids.size());
    expect_range(p + "ids", ids, config_.vocab_size);
    expect_range(p + "pos", pos, n);
    expect_range(p + "logits_pos", folder_.ints(p + "logits_pos"), n);
    expect_range(p + "greedy.ids", folder_.ints(q + p + "greedy.ids"), config_.vocab_size);
    runner_.reset(0);
    Recorder recorder(config_, n);
    std::vector<float> final_rows;
    for (int64_t first = 0; first < n;) {
      const int64_t count = options_.chunk > 0 ? std::min(options_.chunk, n - first) : n;
      recorder.begin_launch(first, count);
      const model::SequenceRunner::Rows rows{0, std::span(ids).subspan(static_cast<size_t>(first), static_cast<size_t>(count)), false};
      const MatrixView hidden = runner_.forward({&rows, 1}, &recorder);
      append_rows(hidden, final_rows);
      first += count;
    }
    first_tie_.clear();
    judgement_ = folder_.clear_of_ties(i) || options_.mode != Mode::kFp32 ? Judgement::kAll : Judgement::kMedians;
    if (options_.mode != Mode::kFp8Act) {
      choices(i, p, pos, recorder);
      if (!folder_.clear_of_ties(i) && !first_tie_.empty()) judgement_ = Judgement::kNothing;
      if (judgement_ != Judgement::kAll)
        report_.note(
            fmt::format("prompt {} is not clear of ties: {}", i,
                        judgement_ == Judgement::kMedians ? "its medians are judged" : "it chose otherwise at a tie and is not judged"));
      caches(p, n);
      for (const auto& [l, weights] : expert_weights_) compare("moe.w", fmt::format("{}moe.{}.w", p, l), weights, pos, l + 1);
    }
    for (int64_t l = 0; l <= config_.layer_count(); ++l)
      compare(fmt::format("{}hidden.{}", q, l), fmt::format("{}{}hidden.{}", q, p, l),
              pick(recorder.streams(l), pos, config_.streams * config_.hidden_size), pos, l);
    compare(q + "final", q + p + "final", pick(final_rows, pos, config_.hidden_size), pos, config_.layer_count());
    logits(q, p, final_rows);
    const bool mtp = config_.mtp_layers > 0 && options_.mode == Mode::kFp32;
    if (mtp) check_mtp(p, ids, final_rows);
    greedy(q, p, final_rows);
  }

  static void expect_range(const std::string& key, const std::vector<int32_t>& values, int64_t end) {
    for (const int32_t v : values)
      if (v < 0 || v >= end) throw std::runtime_error(fmt::format("{} holds {}, outside 0 ... {}", key, v, end - 1));
  }

  void logits(const std::string& q, const std::string& p, const std::vector<float>& final_rows) {
    std::vector<float> out;
    const std::vector<int32_t> positions = folder_.ints(p + "logits_pos");
    for (const int32_t row : positions) append_rows(runner_.head(hidden_row(final_rows, row)), out);
    // Of positions whose choices are not stored, nobody knows whether a near-tie sent them another way.
    if (options_.mode == Mode::kBf16) {
      const std::vector<int32_t> stored = folder_.ints(p + "pos");
      for (const int32_t row : positions)
        if (std::find(stored.begin(), stored.end(), row) == stored.end()) first_tie_.emplace(row, 0);
    }
    compare(q + "logits", q + p + "logits", out, positions, config_.layer_count());
  }

  // One hidden row in the activation type, valid until the next.
  ConstMatrixView hidden_row(const std::vector<float>& rows, int64_t row) {
    const int64_t d = config_.hidden_size;
    return on_backend({rows.data() + row * d, DType::kF32, 1, d, d});
  }
  // Floats of the host where the backend reads them, in the activation type.
  ConstMatrixView on_backend(ConstMatrixView floats) {
    const DType type = runner_.model().numerics().activation;
    const int64_t bytes = floats.rows * floats.cols * int64_t{sizeof(float)};
    if (bytes > inputs_.bytes()) {
      auto grown = runner_.backend().allocate(bytes);
      if (!grown) throw std::runtime_error(grown.error().message);
      inputs_ = std::move(*grown);
    }
    const MatrixView to{inputs_.data(), type, floats.rows, floats.cols, floats.cols};
    for (int64_t r = 0; r < floats.rows; ++r)
      for (int64_t c = 0; c < floats.cols; ++c) {
        if (type == DType::kF32)
          to.row<float>(r)[c] = floats.row<float>(r)[c];
        else
          to.row<bf16>(r)[c] = to_bf16(floats.row<float>(r)[c]);
      }
    return to;
  }

  void choices(int i, const std::string& p, const std::vector<int32_t>& pos, const Recorder& recorder) {
    const bool must_match = options_.mode == Mode::kFp32 && folder_.clear_of_ties(i);
    for (int64_t l = 0; l < config_.layer_count(); ++l) {
      if (config_.layers[static_cast<size_t>(l)].attention == model::AttentionKind::kSparse) {
        const std::vector<int32_t> golden = folder_.ints(fmt::format("{}sel.{}", p, l));
        const int64_t width = folder_.shape(fmt::format("{}sel.{}", p, l))[1];
        int64_t different = 0;
        for (size_t r = 0; r < pos.size(); ++r) {
          std::vector<int32_t> mine = recorder.selection(l, pos[r]);
          mine.resize(static_cast<size_t>(width), -1);
          const bool same = std::equal(mine.begin(), mine.end(), golden.begin() + static_cast<std::ptrdiff_t>(r) * width);
          different += same ? 0 : 1;
          if (!same && !must_match) first_tie_.emplace(pos[r], l);
        }
        report_.add_choices("sel", static_cast<int64_t>(pos.size()), different, must_match);
      }
      if (config_.layers[static_cast<size_t>(l)].mlp == model::MlpKind::kMoe) experts(p, l, pos, recorder, must_match);
    }
  }

  void experts(const std::string& p, int64_t l, const std::vector<int32_t>& pos, const Recorder& recorder, bool must_match) {
    const std::vector<int32_t> golden = folder_.ints(fmt::format("{}moe.{}.ids", p, l));
    const auto k = static_cast<size_t>(config_.experts_per_token);
    std::vector<float> weights;
    int64_t different = 0;
    for (size_t r = 0; r < pos.size(); ++r) {
      const auto [ids, w] = recorder.experts(l, pos[r]);
      weights.insert(weights.end(), w.begin(), w.end());
      std::vector<int32_t> a = ids;
      std::vector<int32_t> b(golden.begin() + static_cast<std::ptrdiff_t>(r * k),
                             golden.begin() + static_cast<std::ptrdiff_t>((r + 1) * k));
      std::sort(a.begin(), a.end());
      std::sort(b.begin(), b.end());
      different += a == b ? 0 : 1;
      if (a != b && !must_match) first_tie_.emplace(pos[r], l);
    }
    report_.add_choices("moe.ids", static_cast<int64_t>(pos.size()), different, must_match);
    expert_weights_[l] = std::move(weights);
  }

  void caches(const std::string& p, int64_t n) {
    size_t kda = 0;
    size_t sparse = 0;
    for (int64_t l = 0; l < config_.layer_count(); ++l) {
      if (config_.layers[static_cast<size_t>(l)].attention == model::AttentionKind::kKda) {
        const KdaCache cache = read_kda(runner_, 0, kda++);
        compare("kda.state", fmt::format("{}kda.{}.state", p, l), cache.state);
        compare("kda.conv", fmt::format("{}kda.{}.conv", p, l), cache.window);
      } else {
        const std::vector<int32_t> pools = folder_.ints(fmt::format("{}idx.{}.pool_ids", p, l));
        compare("idx.pooled", fmt::format("{}idx.{}.pooled", p, l), read_pooled(runner_, 0, sparse, pools));
        compare("idx.tail", fmt::format("{}idx.{}.tail", p, l), read_tail(runner_, 0, sparse, n));
        ++sparse;
      }
    }
  }

  // Follows the golden tokens, so that one near-tie does not hide the steps after it.
  void greedy(const std::string& q, const std::string& p, const std::vector<float>& final_rows) {
    const std::vector<int32_t> golden = folder_.ints(q + p + "greedy.ids");
    const std::string safe_key = p + (options_.mode == Mode::kBf16 ? "greedy.safe_bf16" : "greedy.safe_fp32");
    // FP8 activations have no safe list: a rounding that falls to the other side moves logits by far more than float noise.
    const std::vector<uint8_t> safe = q.empty() ? folder_.flags(safe_key) : std::vector<uint8_t>(golden.size(), 0);
    const int64_t n = static_cast<int64_t>(final_rows.size()) / config_.hidden_size;
    int64_t compared = 0;
    int64_t different = 0;
    const ops::SamplingRow row{};
    int32_t token = runner_.sample(hidden_row(final_rows, n - 1), row);
    for (size_t s = 0; s < golden.size(); ++s) {
      if (safe[s] != 0 || !q.empty()) {
        ++compared;
        different += token == golden[s] ? 0 : 1;
      }
      const model::SequenceRunner::Rows next{0, {&golden[s], 1}, false};
      token = runner_.sample(runner_.forward({&next, 1}), row);
    }
    report_.add_choices("greedy", compared, different, q.empty() && judgement_ != Judgement::kNothing);
  }

  void check_mtp(const std::string& p, const std::vector<int32_t>& ids, const std::vector<float>& final_rows);

  const Folder& folder_;
  const CheckOptions& options_;
  model::SequenceRunner& runner_;
  const model::Config& config_;
  Report report_;
  int prompt_ = 0;
  Judgement judgement_ = Judgement::kAll;
  bool e4m3_tie_ = false;                                 // one was met in this prompt
  std::map<int64_t, std::vector<float>> expert_weights_;  // of the prompt, by layer
  std::map<int32_t, int64_t> first_tie_;                  // position -> first layer whose experts or pools differ from the golden ones
  Buffer inputs_;                                         // of on_backend
};

// The drafts of one round, in the two readings that the engine implements: own (index_share_for_mtp_iteration off) and shared_plus (on).
void Checker::check_mtp(const std::string& p, const std::vector<int32_t>& ids, const std::vector<float>& final_rows) {
  const std::string key = "mtp." + p;
  const auto n = static_cast<int64_t>(ids.size());
  const int64_t d = config_.hidden_size;
  std::vector<int32_t> next(ids.begin() + 1, ids.end());
  next.push_back(folder_.ints(key + "first")[0]);
  for (const std::string variant : {"own", "shared_plus"}) {
    OwnedSelection selection(config_, runner_.backend(), n);
    Recorder recorder(config_, n);
    recorder.begin_launch(0, n);
    const ConstMatrixView hidden = on_backend({final_rows.data(), DType::kF32, n, d, d});
    MatrixView out = runner_.mtp(0, 0, next, hidden, &recorder, selection.view(), true);
    std::vector<float> rows;
    append_rows(out, rows);
    if (variant == "own") {
      compare("mtp.rows", key + "rows", pick(rows, folder_.ints(key + "pos"), d));
      std::vector<int32_t> mine = recorder.selection(config_.layer_count(), n - 1);
      const std::vector<int32_t> golden = folder_.ints(key + "sel");
      mine.resize(golden.size(), -1);
      report_.add_choices("mtp.sel", 1, mine == golden ? 0 : 1, true);
      compare("mtp.tail", key + "tail", read_tail(runner_, 0, runner_.model().cache_layout().index.size() - 1, n));
    }
    selection.keep_row(n - 1);
    std::vector<float> vectors(rows.end() - d, rows.end());
    std::vector<float> all_logits;
    std::vector<int32_t> drafts;
    std::vector<float> h = vectors;
    for (int64_t step = 0; step < 7; ++step) {
      if (step > 0) {
        const ConstMatrixView previous = on_backend({h.data(), DType::kF32, 1, d, d});
        out = runner_.mtp(0, n + step - 1, {&drafts.back(), 1}, previous, nullptr, selection.view(), variant == "own");
        h.clear();
        append_rows(out, h);
        vectors.insert(vectors.end(), h.begin(), h.end());
      }
      const ConstMatrixView row = on_backend({h.data(), DType::kF32, 1, d, d});
      append_rows(runner_.head(row), all_logits);
      drafts.push_back(runner_.sample(row, {}));
    }
    const std::vector<int32_t> golden = folder_.ints(key + variant + ".ids");
    report_.add_choices("mtp.ids", 7, drafts == golden ? 0 : 7, true);
    compare("mtp.h", key + variant + ".h", vectors);
    compare("mtp.logits", key + variant + ".logits", all_logits);
  }
}

int64_t longest_prompt(const Folder& folder) {
  int64_t longest = 0;
  for (int i = 0; i < folder.prompt_count(); ++i) {
    const std::string p = fmt::format("p{}.", i);
    longest = std::max(longest, folder.shape(p + "ids")[0] + folder.shape(p + "greedy.ids")[0] + 8);
  }
  return longest;
}

}  // namespace

Result<Report> check_folder(const Folder& folder, const CheckOptions& options) {
  BATON_ASSIGN(const model::Checkpoint checkpoint, model::Checkpoint::open(folder.dir()));
  std::unique_ptr<ops::Backend> owned;
  if (options.cuda) {
    BATON_ASSIGN(cuda::OpenedDevice opened, cuda::open_device({.host_visible = true, .plain = options.plain_cuda}));
    owned = std::move(opened.backend);
  } else {
    owned = std::make_unique<cpu::CpuBackend>(cpu::BackendOptions{.threads = options.threads, .isa = options.isa});
  }
  ops::Backend& backend = *owned;
  const int64_t tokens = longest_prompt(folder);
  model::ModelOptions model_options;
  const DType type = options.mode == Mode::kBf16 ? DType::kBF16 : DType::kF32;
  model_options.numerics.activation = type;
  if (options.mode == Mode::kFp8Act) model_options.numerics.quant = ops::ActivationQuant::kE4m3Block;
  model_options.cache = {.activation = type, .state = DType::kF32, .latent = type, .index = type};
  model_options.max_rows = tokens;
  model_options.max_logits_rows = 1;
  model_options.max_sequences = 1;
  model_options.max_pages = (tokens + ops::kPageTokens - 1) / ops::kPageTokens;
  model_options.loading.threads = options.threads;
  BATON_ASSIGN(const auto model, model::Glm5Next::load(checkpoint, backend, model_options));
  BATON_ASSIGN(model::SequenceRunner runner, model::SequenceRunner::create(*model, backend, 1, tokens, tokens));
  return Checker(folder, options, runner).run();
}

}  // namespace baton::golden
