#include "model/dflash2.h"

#include <algorithm>
#include <cstring>
#include <limits>

#include "model/weight_builder.h"

namespace baton::model {
namespace {

constexpr int64_t kWindowAlignment = 64;

ops::WindowLayout window_layout(const DFlash2Config& c, DType activation) {
  return {.kv_heads = c.kv_heads, .dim = c.head_dim, .window = static_cast<int32_t>(c.window), .dtype = activation};
}

int64_t window_stride(const DFlash2Config& c, DType activation) { return align_up(window_layout(c, activation).bytes(), kWindowAlignment); }

}  // namespace

DrafterNeeds dflash2_needs(const DFlash2Config& config, DType activation) {
  return {.most_drafts = static_cast<int32_t>(config.drafts()),
          .feature_layers = config.target_layers,
          .window_bytes = config.layers * window_stride(config, activation)};
}

class DFlash2Drafter::Loader : public WeightBuilder {
 public:
  Loader(const DFlash2Checkpoint& checkpoint, ops::Backend& backend, std::byte* base)
      : WeightBuilder(checkpoint.set(), backend, base), layers_(checkpoint.config().layers) {}

  Weights build() {
    Weights w;
    w.fc = matrix("fc.weight");
    w.feature_norm = floats("hidden_norm.weight");
    for (int64_t l = 0; l < layers_; ++l) w.layers.push_back(layer(fmt::format("layers.{}.", l)));
    w.final_norm = floats("norm.weight");
    w.predecessor = codebook("candidate_selector.predecessor_codebook");
    w.successor = codebook("candidate_selector.successor_codebook");
    w.path_projection = matrix("candidate_selector.hidden_projection.weight");
    return w;
  }

 private:
  LayerWeights layer(const std::string& p) {
    LayerWeights w;
    w.input_norm = floats(p + "input_layernorm.weight");
    w.post_norm = floats(p + "post_attention_layernorm.weight");
    w.q_norm = floats(p + "self_attn.q_norm.weight");
    w.k_norm = floats(p + "self_attn.k_norm.weight");
    w.q = matrix(p + "self_attn.q_proj.weight");
    w.k = matrix(p + "self_attn.k_proj.weight");
    w.v = matrix(p + "self_attn.v_proj.weight");
    w.o = matrix(p + "self_attn.o_proj.weight");
    w.gate = matrix(p + "mlp.gate_proj.weight");
    w.up = matrix(p + "mlp.up_proj.weight");
    w.down = matrix(p + "mlp.down_proj.weight");
    w.attention_conv = conv(p + "attention_conv.");
    w.mlp_conv = conv(p + "mlp_conv.");
    return w;
  }
  ConvWeights conv(const std::string& p) { return {floats(p + "base_kernel"), matrix(p + "kernel_projection.weight")}; }
  ConstMatrixView codebook(const std::string& name) {
    ConstMatrixView view = matrix_of(tensor(name));
    view.data = raw_copy(tensor(name));
    return view;
  }

  int64_t layers_;
};

Result<std::unique_ptr<DFlash2Drafter>> DFlash2Drafter::load(const DFlash2Checkpoint& checkpoint, Glm5Next& target, ops::Backend& backend,
                                                             const DFlash2Options& options) {
  const DFlash2Config& config = checkpoint.config();
  BATON_TRY(check_dflash2_target(config, target.config(), checkpoint.set().dir().string()));
  const DType type = target.numerics().activation;
  std::unique_ptr<DFlash2Drafter> d(new DFlash2Drafter(config, target, backend, options));
  d->needs_ = target.options().drafter;
  d->window_stride_ = window_stride(config, type);
  BATON_CHECK(d->needs_.window_bytes == config.layers * d->window_stride_ && d->needs_.feature_layers == config.target_layers);
  BATON_CHECK(options.vocabulary >= 1 && options.vocabulary <= config.vocab_size && d->needs_.most_drafts <= config.drafts());
  BATON_CHECK(target.options().max_logits_rows >= config.drafts());

  Loader plan(checkpoint, backend, nullptr);
  plan.build();
  BATON_ASSIGN(Buffer memory, backend.allocate(plan.bytes()));
  Loader loader(checkpoint, backend, memory.data());
  d->weights_ = loader.build();
  BATON_TRY(loader.run_jobs(options.threads, {}));
  d->weights_.memory = std::move(memory);

  BATON_ASSIGN(d->inputs_, backend.allocate(d->input_bytes()));
  BATON_ASSIGN(d->logits_, backend.allocate(d->blocks_per_head() * config.drafts() * config.vocab_size * int64_t{sizeof(float)}));
  Launcher planner(backend);
  LaunchRows rows;
  rows.batch.row_count = static_cast<int32_t>(options.max_rows);
  rows.batch.sequence_count = static_cast<int32_t>(options.max_sequences);
  d->run_commit(planner, rows, {nullptr, type, options.max_rows, config.feature_width(), config.feature_width()});
  Block block;
  block.batch.row_count = static_cast<int32_t>(options.max_sequences * config.block_size);
  block.batch.sequence_count = static_cast<int32_t>(options.max_sequences);
  block.steps = config.drafts();
  d->run_block(planner, block, {});
  BATON_ASSIGN(d->workspace_, backend.allocate(planner.planned_bytes()));
  d->drafted_.resize(static_cast<size_t>(options.max_sequences * config.drafts()));
  return d;
}

ops::WindowLayout DFlash2Drafter::window(int64_t layer) const {
  ops::WindowLayout layout = window_layout(config_, target_.numerics().activation);
  layout.slot_offset = target_.cache_layout().drafter_window_offset + layer * window_stride_;
  return layout;
}

int64_t DFlash2Drafter::blocks_per_head() const {
  return std::min(options_.max_sequences, target_.options().max_logits_rows / config_.drafts());
}

void DFlash2Drafter::commit(const CommitInput& input) {
  BATON_CHECK_MSG(input.features.rows <= options_.max_rows, "{} rows, planned for {}", input.features.rows, options_.max_rows);
  Launcher run = launcher();
  run_commit(run, input.rows, input.features);
}

void DFlash2Drafter::run_commit(Launcher& launcher, const LaunchRows& rows, ConstMatrixView features) const {
  Arena& arena = launcher.arena();
  const ArenaScope scope(arena);
  const ops::OpTable& ops = launcher.ops();
  const DType type = features.dtype;
  const int64_t m = features.rows;
  const int64_t kv = config_.kv_heads * config_.head_dim;
  const auto eps = static_cast<float>(config_.rms_norm_eps);
  const MatrixView context = arena.matrix(type, m, config_.hidden_size);
  const MatrixView key = arena.matrix(type, m, kv);
  const MatrixView value = arena.matrix(type, m, kv);
  const ops::GemmOutput fc{weights_.fc, context};
  launcher.launch(ops.gemm, {.x = features, .outputs = {&fc, 1}});
  launcher.launch(ops.rms_norm, {.x = context, .weight = weights_.feature_norm, .eps = eps, .y = context});
  for (int64_t l = 0; l < config_.layers; ++l) {
    const LayerWeights& w = weights_.layers[static_cast<size_t>(l)];
    const ops::GemmOutput projections[] = {{w.k, key}, {w.v, value}};
    launcher.launch(ops.gemm, {.x = context, .outputs = projections});
    launcher.launch(ops.window_write, {.batch = rows.batch,
                                       .key = key,
                                       .value = value,
                                       .norm = w.k_norm,
                                       .eps = eps,
                                       .rotary = {static_cast<float>(config_.rope_theta)},
                                       .slots = rows.slots,
                                       .layout = window(l)});
  }
}

int64_t DFlash2Drafter::input_bytes() const {
  const int64_t n = options_.max_sequences;
  const int64_t words = 3 * n * config_.block_size + n * (1 + config_.drafts() * (1 + 2 * config_.selector_top_k));
  return n * static_cast<int64_t>(sizeof(ops::SequenceRows) + sizeof(ops::DraftPathRow)) + words * int64_t{sizeof(int32_t)};
}

// path rows | sequences | ids | row_sequence | positions | anchors, uploaded at once; behind them room for the drafts and their candidates.
DFlash2Drafter::Block DFlash2Drafter::stage(const DraftInput& input) {
  const size_t n = input.sequences.size();
  const auto block = static_cast<size_t>(config_.block_size);
  const size_t m = n * block;
  const size_t sequences_at = n * sizeof(ops::DraftPathRow);
  const size_t words_at = sequences_at + n * sizeof(ops::SequenceRows);
  staging_.resize(words_at + (3 * m + n) * sizeof(int32_t));
  std::vector<int32_t> anchors(n);
  backend_.copy_to_host(anchors.data(), input.anchors, static_cast<int64_t>(n * sizeof(int32_t)));
  std::vector<int32_t> words(3 * m + n, config_.mask_token_id);
  for (size_t q = 0; q < n; ++q) {
    const ops::SequenceRows& s = input.sequences[q];
    const ops::SamplingRow& sampling = input.sampling[q];
    const ops::DraftPathRow path{.temperature = sampling.temperature,
                                 .seed = sampling.seed,
                                 .position = s.position + 1,
                                 .stream = input.proposals != nullptr ? 1U : 0U};
    const ops::SequenceRows rows{static_cast<int32_t>(q * block), static_cast<int32_t>(block), s.position, s.slot, 1};
    std::memcpy(staging_.data() + q * sizeof path, &path, sizeof path);
    std::memcpy(staging_.data() + sequences_at + q * sizeof rows, &rows, sizeof rows);
    words[q * block] = anchors[q];
    for (size_t i = 0; i < block; ++i) {
      words[m + q * block + i] = static_cast<int32_t>(q);
      words[2 * m + q * block + i] = s.position + static_cast<int32_t>(i);
    }
    words[3 * m + q] = anchors[q];
  }
  std::memcpy(staging_.data() + words_at, words.data(), words.size() * sizeof(int32_t));
  backend_.copy_to_device(inputs_.data(), staging_.data(), static_cast<int64_t>(staging_.size()));

  auto* const device = reinterpret_cast<int32_t*>(inputs_.data() + words_at);
  Block b;
  b.ids = device;
  b.batch = {.sequences = reinterpret_cast<const ops::SequenceRows*>(inputs_.data() + sequences_at),
             .sequence_count = static_cast<int32_t>(n),
             .row_count = static_cast<int32_t>(m),
             .row_sequence = device + m,
             .positions = device + 2 * m};
  b.anchors = device + 3 * m;
  b.rows = reinterpret_cast<const ops::DraftPathRow*>(inputs_.data());
  b.drafts = device + 3 * m + n;
  b.steps = *std::max_element(input.counts.begin(), input.counts.end());
  if (input.proposals != nullptr) {
    const auto places = static_cast<int64_t>(n) * b.steps;
    b.candidates = b.drafts + places;
    b.probabilities = reinterpret_cast<float*>(b.candidates + places * config_.selector_top_k);
  }
  return b;
}

void DFlash2Drafter::draft(const DraftInput& input, int32_t* ids, int64_t stride) {
  const auto n = static_cast<int64_t>(input.sequences.size());
  if (n == 0) return;
  BATON_CHECK_MSG(n <= options_.max_sequences, "{} sequences, planned for {}", n, options_.max_sequences);
  const Block block = stage(input);
  BATON_CHECK(block.steps >= 1 && block.steps <= config_.drafts());
  Launcher run = launcher();
  run_block(run, block, input.rows.slots);
  backend_.copy_to_host(drafted_.data(), block.drafts, n * block.steps * int64_t{sizeof(int32_t)});
  for (int64_t q = 0; q < n; ++q) std::copy_n(drafted_.data() + q * block.steps, input.counts[static_cast<size_t>(q)], ids + q * stride);
  if (input.proposals != nullptr) hand_over(block, input, ids, stride);
}

// What the drafts were drawn from. Where there was nothing to draw from, nothing is drafted from there on.
void DFlash2Drafter::hand_over(const Block& block, const DraftInput& input, int32_t* ids, int64_t stride) {
  const auto n = std::ssize(input.sequences);
  const int64_t top = config_.selector_top_k;
  const auto all = static_cast<size_t>(n * block.steps * top);
  candidates_.resize(all);
  probabilities_.resize(all);
  backend_.copy_to_host(candidates_.data(), block.candidates, std::ssize(candidates_) * int64_t{sizeof(int32_t)});
  backend_.copy_to_host(probabilities_.data(), block.probabilities, std::ssize(probabilities_) * int64_t{sizeof(float)});
  for (int64_t q = 0; q < n; ++q) {
    const int64_t from = q * block.steps * top, to = q * stride * top;
    const int64_t drafts = input.counts[static_cast<size_t>(q)];
    std::copy_n(candidates_.data() + from, drafts * top, input.proposals->tokens + to);
    std::copy_n(probabilities_.data() + from, drafts * top, input.proposals->probabilities + to);
    for (int64_t i = 0; i < drafts; ++i)
      if (candidates_[static_cast<size_t>(from + i * top)] < 0) ids[q * stride + i] = -1;
  }
}

void DFlash2Drafter::convolve(Launcher& launcher, const ConvWeights& w, int64_t side, ConstMatrixView x, ConstMatrixView dynamic,
                              MatrixView y) const {
  const int64_t groups = config_.conv_groups();
  launcher.launch(launcher.ops().block_conv, {.x = x,
                                              .base = w.base + side * 2 * config_.hidden_size,
                                              .dynamic = dynamic.columns(side * 2 * groups, 2 * groups),
                                              .groups = groups,
                                              .block = config_.block_size,
                                              .y = y});
}

void DFlash2Drafter::run_block(Launcher& launcher, const Block& block, ops::SlotPoolView slots) {
  Arena& arena = launcher.arena();
  const ArenaScope scope(arena);
  const ops::OpTable& ops = launcher.ops();
  const DType type = target_.numerics().activation;
  const int64_t m = block.batch.row_count;
  const int64_t d = config_.hidden_size;
  const int64_t q_width = config_.heads * config_.head_dim;
  const int64_t kv_width = config_.kv_heads * config_.head_dim;
  const auto eps = static_cast<float>(config_.rms_norm_eps);
  const MatrixView r = arena.matrix(type, m, d);  // the residual
  const MatrixView x = arena.matrix(type, m, d);
  const MatrixView y = arena.matrix(type, m, d);
  const MatrixView dynamic = arena.matrix(type, m, 4 * config_.conv_groups());
  const MatrixView q = arena.matrix(type, m, q_width);
  const MatrixView key = arena.matrix(type, m, kv_width);
  const MatrixView value = arena.matrix(type, m, kv_width);
  const MatrixView attended = arena.matrix(type, m, q_width);
  const MatrixView inner = arena.matrix(type, m, config_.intermediate_size);

  // x = norm(r), r += `sum` first; then the taps that x gives for both sides of the sublayer, and y = x convolved with those of the first.
  const auto enter = [&](ConstMatrixView sum, const float* norm, const ConvWeights& conv) {
    if (sum.rows > 0)
      launcher.launch(ops.rms_norm, {.x = sum, .add_to = r, .weight = norm, .eps = eps, .y = x});
    else
      launcher.launch(ops.rms_norm, {.x = r, .weight = norm, .eps = eps, .y = x});
    const ops::GemmOutput taps{conv.projection, dynamic};
    launcher.launch(ops.gemm, {.x = x, .outputs = {&taps, 1}});
    convolve(launcher, conv, 0, x, dynamic, y);
  };

  if (!launcher.planning()) target_.embed(block.ids, r);
  ConstMatrixView sum;  // awaits its addition, which the next norm does together with its own work
  for (int64_t l = 0; l < config_.layers; ++l) {
    const LayerWeights& w = weights_.layers[static_cast<size_t>(l)];
    enter(sum, w.input_norm, w.attention_conv);
    const ops::GemmOutput projections[] = {{w.q, q}, {w.k, key}, {w.v, value}};
    launcher.launch(ops.gemm, {.x = y, .outputs = projections});
    launcher.launch(ops.window_attend, {.batch = block.batch,
                                        .block = config_.block_size,
                                        .q = q,
                                        .key = key,
                                        .value = value,
                                        .heads = config_.heads,
                                        .q_norm = w.q_norm,
                                        .k_norm = w.k_norm,
                                        .eps = eps,
                                        .rotary = {static_cast<float>(config_.rope_theta)},
                                        .slots = slots,
                                        .layout = window(l),
                                        .out = attended});
    const ops::GemmOutput attention_out{w.o, x};
    launcher.launch(ops.gemm, {.x = attended, .outputs = {&attention_out, 1}});
    convolve(launcher, w.attention_conv, 1, x, dynamic, y);

    enter(y, w.post_norm, w.mlp_conv);
    launcher.launch(ops.gated_mlp, {.x = y, .gate = w.gate, .up = w.up, .limit = std::numeric_limits<float>::max(), .h = inner});
    const ops::GemmOutput mlp_out{w.down, x};
    launcher.launch(ops.gemm, {.x = inner, .outputs = {&mlp_out, 1}});
    convolve(launcher, w.mlp_conv, 1, x, dynamic, y);
    sum = y;
  }
  launcher.launch(ops.rms_norm, {.x = sum, .add_to = r, .weight = weights_.final_norm, .eps = eps, .y = x});
  last_hidden_ = x;
  run_paths(launcher, block, x);
}

void DFlash2Drafter::run_paths(Launcher& launcher, const Block& block, ConstMatrixView hidden) {
  Arena& arena = launcher.arena();
  const ArenaScope scope(arena);
  const int64_t n = block.batch.sequence_count;
  const int64_t steps = block.steps;
  const int64_t v = config_.vocab_size;
  const MatrixView rows = arena.matrix(hidden.dtype, n * steps, hidden.cols);  // the drafted positions alone
  const MatrixView projected = arena.matrix(DType::kF32, n * steps, config_.selector_rank);
  if (!launcher.planning())
    for (int64_t q = 0; q < n; ++q)
      backend_.copy_on_device(rows.row_bytes(q * steps), hidden.row_bytes(q * config_.block_size + 1),
                              steps * hidden.cols * dtype_bytes(hidden.dtype));
  const ops::GemmOutput projection{weights_.path_projection, projected};
  launcher.launch(launcher.ops().gemm, {.x = rows, .outputs = {&projection, 1}});
  const int64_t at_once = blocks_per_head();
  for (int64_t first = 0; first < n; first += at_once) {
    const int64_t count = std::min(at_once, n - first);
    const int64_t at = first * steps, top = config_.selector_top_k;
    const MatrixView logits{logits_.data(), DType::kF32, count * steps, v, v};
    if (!launcher.planning()) target_.head(rows.row_range(first * steps, count * steps), logits);
    launcher.launch(launcher.ops().draft_path, {.logits = logits.columns(0, options_.vocabulary),
                                                .hidden = projected.row_range(first * steps, count * steps),
                                                .predecessor = weights_.predecessor,
                                                .successor = weights_.successor,
                                                .anchors = block.anchors + first,
                                                .rows = block.rows + first,
                                                .steps = steps,
                                                .top = config_.selector_top_k,
                                                .ids = block.drafts + first * steps,
                                                .candidates = block.candidates == nullptr ? nullptr : block.candidates + at * top,
                                                .probabilities = block.candidates == nullptr ? nullptr : block.probabilities + at * top});
    if (launcher.planning()) return;  // the first is the largest
  }
}

}  // namespace baton::model
