#include "model/weights.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <mutex>
#include <new>
#include <thread>

namespace baton::model {
namespace {

std::string layer_name(int64_t l) { return fmt::format("model.language_model.layers.{}.", l); }

ConstMatrixView matrix_of(const TensorEntry& t) {
  const int64_t cols = t.shape.size() > 1 ? t.elements() / t.shape[0] : t.elements();
  return {t.data, t.dtype, t.shape.size() > 1 ? t.shape[0] : 1, cols, cols};
}

// Element of a possibly unaligned float tensor.
float element(const TensorEntry& t, int64_t i) {
  if (t.dtype == DType::kF32) {
    float x = 0;
    std::memcpy(&x, t.data + i * 4, 4);
    return x;
  }
  bf16 x{};
  std::memcpy(&x, t.data + i * 2, 2);
  return to_float(x);
}

// Tensors are read in pieces of about this size, so that mapped pages and their copies are never both there for long.
constexpr int64_t kPieceBytes = 8 << 20;

// Builds the weights twice with the same code: a first pass only adds up bytes, the second hands out addresses and collects copy jobs.
class Builder {
 public:
  Builder(const Checkpoint& checkpoint, ops::Backend& backend, const WeightOptions& options, std::byte* base)
      : checkpoint_(checkpoint), config_(checkpoint.config()), backend_(backend), options_(options), base_(base) {}

  int64_t bytes() const { return used_; }

  Weights build() {
    Weights w;
    const TensorEntry& embed = tensor("model.language_model.embed_tokens.weight");
    w.embed = {raw_copy(embed), embed.dtype, config_.vocab_size, config_.hidden_size, config_.hidden_size};
    for (int64_t l = 0; l < config_.layer_count(); ++l) w.layers.push_back(layer(l));
    w.final_norm = floats("model.language_model.norm.weight");
    w.head = config_.tie_word_embeddings ? matrix("model.language_model.embed_tokens.weight") : matrix("lm_head.weight");
    if (config_.mtp_layers > 0) w.mtp = mtp(layer_name(config_.layer_count()));
    return w;
  }

  Status run_jobs() {
    std::atomic<size_t> next{0};
    std::atomic<int64_t> done{0};
    // Largest first: the threads finish together.
    std::sort(jobs_.begin(), jobs_.end(), [](const Job& a, const Job& b) { return a.bytes > b.bytes; });
    int64_t total = 0;
    for (const Job& job : jobs_) total += job.bytes;
    const auto work = [&] {
      for (size_t i = next.fetch_add(1); i < jobs_.size() && !failed(); i = next.fetch_add(1)) {
        try {
          jobs_[i].run();
        } catch (const std::bad_alloc&) {
          fail({Error::Kind::kExhausted, "out of memory while loading the weights"});
        }
        const int64_t now = done.fetch_add(jobs_[i].bytes) + jobs_[i].bytes;
        if (options_.progress) options_.progress(now, total);
      }
    };
    {
      std::vector<std::jthread> threads;
      for (int i = 1; i < options_.threads; ++i) threads.emplace_back(work);
      work();
    }
    if (failure_) return *failure_;
    return {};
  }

 private:
  struct Job {
    int64_t bytes;
    std::function<void()> run;
  };

  bool failed() {
    const std::lock_guard lock(mutex_);
    return failure_.has_value();
  }
  void fail(Error error) {
    const std::lock_guard lock(mutex_);
    if (!failure_) failure_ = std::move(error);
  }
  // Small tensors are looked at whole: one value that is not a number spoils everything, or hides behind a comparison.
  void expect_finite(const TensorEntry& t, const float* values) {
    for (int64_t i = 0; i < t.elements(); ++i)
      if (!std::isfinite(values[i]))
        return fail({Error::Kind::kInvalid, fmt::format("{}: tensor {} holds {} at index {}; the checkpoint is damaged",
                                                        checkpoint_.dir().string(), t.name, values[i], i)});
  }

  void* take(int64_t bytes) {
    const int64_t begin = used_;
    used_ = align_up(begin + bytes, kBufferAlignment);
    return base_ == nullptr ? nullptr : base_ + begin;
  }
  void job(int64_t bytes, std::function<void()> run) {
    if (base_ != nullptr) jobs_.push_back({bytes, std::move(run)});
  }
  const TensorEntry& tensor(const std::string& name) const {
    const TensorEntry* t = checkpoint_.find(name);
    BATON_CHECK_MSG(t != nullptr, "tensor {} passed validation and is gone", name);
    return *t;
  }

  const void* raw_copy(const TensorEntry& t) {
    auto* to = static_cast<std::byte*>(take(t.bytes));
    if (to == nullptr) return nullptr;
    for (int64_t first = 0; first < t.bytes; first += kPieceBytes) {
      const int64_t bytes = std::min(kPieceBytes, t.bytes - first);
      job(bytes, [this, to, &t, first, bytes] {
        backend_.copy_to_device(to + first, t.data + first, bytes);
        Checkpoint::drop_pages(t.data + first, bytes);
      });
    }
    return to;
  }

  // `count` floats at the end of the gathered tensors, each widened.
  const float* floats(std::initializer_list<std::string> names) {
    int64_t count = 0;
    std::vector<const TensorEntry*> parts;
    for (const std::string& name : names) {
      parts.push_back(&tensor(name));
      count += parts.back()->elements();
    }
    void* to = take(count * 4);
    job(count * 4, [this, to, parts, count] {
      std::vector<float> host;
      host.reserve(static_cast<size_t>(count));
      for (const TensorEntry* t : parts) {
        for (int64_t i = 0; i < t->elements(); ++i) host.push_back(element(*t, i));
        expect_finite(*t, host.data() + host.size() - t->elements());
      }
      backend_.copy_to_device(to, host.data(), count * 4);
    });
    return static_cast<const float*>(to);
  }
  const float* floats(const std::string& name) { return floats({name}); }

  ops::WeightView matrix(const std::string& name) {
    const TensorEntry& t = tensor(name);
    const ConstMatrixView host = matrix_of(t);
    ops::WeightView w = reserve(host.dtype, host.rows, host.cols);
    const int64_t row_bytes = host.cols * dtype_bytes(host.dtype);
    const int64_t step = std::max<int64_t>(1, kPieceBytes / (row_bytes * ops::kStoreRows)) * ops::kStoreRows;
    for (int64_t first = 0; first < host.rows && base_ != nullptr; first += step) {
      const ConstMatrixView piece = host.row_range(first, std::min(step, host.rows - first));
      void* to = static_cast<std::byte*>(const_cast<void*>(w.data)) + backend_.weight_bytes(host.dtype, first, host.cols);
      job(piece.rows * row_bytes, [this, piece, to, row_bytes] {
        backend_.store_weight(to, piece);
        Checkpoint::drop_pages(piece.row_bytes(0), piece.rows * row_bytes);
      });
    }
    if (const TensorEntry* scale = checkpoint_.scale_of(name)) w.scale = static_cast<const float*>(raw_copy(*scale));
    return w;
  }

  // Room for a weight that a job fills.
  ops::WeightView reserve(DType dtype, int64_t n, int64_t k) { return {take(backend_.weight_bytes(dtype, n, k)), nullptr, dtype, n, k}; }

  void store_transposed(const ops::WeightView& to, ConstMatrixView host) {
    const int64_t element = dtype_bytes(host.dtype);
    std::vector<std::byte> turned(static_cast<size_t>(host.rows * host.cols * element));
    for (int64_t r = 0; r < host.rows; ++r)
      for (int64_t c = 0; c < host.cols; ++c)
        std::memcpy(&turned[static_cast<size_t>((c * host.rows + r) * element)], host.row_bytes(r) + c * element,
                    static_cast<size_t>(element));
    backend_.store_weight(const_cast<void*>(to.data), {turned.data(), host.dtype, host.cols, host.rows, host.rows});
  }

  HyperWeights hyper(const std::string& p, const std::string& site) {
    const std::string name = p + "hc_" + site;
    return {matrix(name + "_fn"), floats(name + "_base"), floats(name + "_scale")};
  }

  KdaLayerWeights kda(const std::string& p) {
    KdaLayerWeights w;
    w.q = matrix(p + "q_proj.weight");
    w.k = matrix(p + "k_proj.weight");
    w.v = matrix(p + "v_proj.weight");
    w.b = matrix(p + "b_proj.weight");
    w.f_a = matrix(p + "f_a_proj.weight");
    w.f_b = matrix(p + "f_b_proj.weight");
    w.g_a = matrix(p + "g_a_proj.weight");
    w.g_b = matrix(p + "g_b_proj.weight");
    w.o = matrix(p + "o_proj.weight");
    w.small.conv = floats({p + "q_conv1d.weight", p + "k_conv1d.weight", p + "v_conv1d.weight"});
    w.small.a_log = floats(p + "A_log");
    w.small.dt_bias = floats(p + "dt_bias");
    w.small.o_norm = floats(p + "o_norm.weight");
    w.small.heads = config_.kda_heads;
    w.small.dim = config_.kda_head_dim;
    w.small.norm_eps = static_cast<float>(config_.rms_norm_eps);
    w.small.lower_bound = static_cast<float>(config_.gate_lower_bound);
    return w;
  }

  SparseLayerWeights sparse(const std::string& p) {
    SparseLayerWeights w;
    w.q_a = matrix(p + "q_a_proj.weight");
    w.q_b = matrix(p + "q_b_proj.weight");
    w.kv_a = matrix(p + "kv_a_proj_with_mqa.weight");
    w.o = matrix(p + "o_proj.weight");
    w.q_norm = floats(p + "q_a_layernorm.weight");
    w.kv_norm = floats(p + "kv_a_layernorm.weight");
    const TensorEntry& kv_b = tensor(p + "kv_b_proj.weight");
    const int64_t per_head = config_.qk_head_dim + config_.v_head_dim;
    for (int64_t h = 0; h < config_.heads; ++h) {
      const ConstMatrixView key = matrix_of(kv_b).row_range(h * per_head, config_.qk_head_dim);
      const ConstMatrixView value = matrix_of(kv_b).row_range(h * per_head + config_.qk_head_dim, config_.v_head_dim);
      w.key_absorb.push_back(reserve(key.dtype, key.cols, key.rows));
      w.value.push_back(reserve(value.dtype, value.rows, value.cols));
      if (options_.expanded_keys) w.key_expand.push_back(reserve(key.dtype, key.rows, key.cols));
      job((key.rows + value.rows) * key.cols * dtype_bytes(key.dtype),
          [this, key, value, absorb = w.key_absorb.back(), store = w.value.back(),
           expand = options_.expanded_keys ? w.key_expand.back() : ops::WeightView{}] {
            store_transposed(absorb, key);
            backend_.store_weight(const_cast<void*>(store.data), value);
            if (!expand.empty()) backend_.store_weight(const_cast<void*>(expand.data), key);
            Checkpoint::drop_pages(key.row_bytes(0), (key.rows + value.rows) * key.cols * dtype_bytes(key.dtype));
          });
    }
    const std::string i = p + "indexer.";
    w.index_q = matrix(i + "wq_b.weight");
    w.index_k = matrix(i + "wk.weight");
    w.index_gate = matrix(i + "index_kpool_compress_gate");
    w.index_weights = matrix(i + "weights_proj.weight");
    w.index_norm_weight = floats(i + "k_norm.weight");
    w.index_norm_bias = floats(i + "k_norm.bias");
    w.index_ape = floats(i + "index_kpool_compress_ape");
    return w;
  }

  MlpWeights mlp(const std::string& p) {
    return {matrix(p + "gate_proj.weight"), matrix(p + "up_proj.weight"), matrix(p + "down_proj.weight")};
  }

  MoeWeights moe(const std::string& p) {
    MoeWeights w;
    w.router = matrix(p + "gate.weight");
    w.bias = floats(p + "gate.e_score_correction_bias");
    if (config_.shared_experts > 0) w.shared = mlp(p + "shared_experts.");
    for (int64_t e = 0; e < config_.experts; ++e) {
      MlpWeights expert = mlp(fmt::format("{}experts.{}.", p, e));
      w.gate.push_back(expert.gate);
      w.up.push_back(expert.up);
      w.down.push_back(expert.down);
    }
    return w;
  }

  LayerWeights layer(int64_t l) {
    const std::string p = layer_name(l);
    LayerWeights w;
    w.attention_mhc = hyper(p, "attn");
    w.ffn_mhc = hyper(p, "ffn");
    w.input_norm = floats(p + "input_layernorm.weight");
    w.post_norm = floats(p + "post_attention_layernorm.weight");
    const LayerKind kind = config_.layers[static_cast<size_t>(l)];
    if (kind.attention == AttentionKind::kKda)
      w.attention = kda(p + "self_attn.");
    else
      w.attention = sparse(p + "self_attn.");
    if (kind.mlp == MlpKind::kDense)
      w.ffn = mlp(p + "mlp.");
    else
      w.ffn = moe(p + "mlp.");
    return w;
  }

  MtpWeights mtp(const std::string& p) {
    MtpWeights w;
    w.embed_norm = floats(p + "enorm.weight");
    w.hidden_norm = floats(p + "hnorm.weight");
    w.input_norm = floats(p + "input_layernorm.weight");
    w.post_norm = floats(p + "post_attention_layernorm.weight");
    w.head_norm = floats(p + "shared_head.norm.weight");
    w.eh_proj = matrix(p + "eh_proj.weight");
    w.attention = sparse(p + "self_attn.");
    w.moe = moe(p + "mlp.");
    return w;
  }

  const Checkpoint& checkpoint_;
  const Config& config_;
  ops::Backend& backend_;
  const WeightOptions& options_;
  std::byte* base_;
  int64_t used_ = 0;
  std::vector<Job> jobs_;
  std::mutex mutex_;
  std::optional<Error> failure_;
};

}  // namespace

Result<Weights> load_weights(const Checkpoint& checkpoint, ops::Backend& backend, const WeightOptions& options) {
  Builder plan(checkpoint, backend, options, nullptr);
  plan.build();
  BATON_ASSIGN(Buffer memory, backend.allocate(plan.bytes()));
  Builder builder(checkpoint, backend, options, memory.data());
  Weights weights = builder.build();
  BATON_TRY(builder.run_jobs());
  weights.memory = std::move(memory);
  return weights;
}

}  // namespace baton::model
