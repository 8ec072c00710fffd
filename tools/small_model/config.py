"""Sizes of a glm5_next model, read from a config.json of the released shape."""
import json
from dataclasses import dataclass
from pathlib import Path

PREFIX = "model.language_model."


@dataclass(frozen=True)
class Config:
    vocab: int
    width: int  # hidden_size
    layers: tuple  # per layer (attention is KDA, feed-forward is MoE)
    eps: float
    streams: int
    sinkhorn: int  # iterations
    hc_eps: float
    kda_heads: int
    kda_dim: int
    gate_bound: float  # log-decays lie between it and 0
    heads: int
    q_rank: int
    kv_rank: int
    qk_dim: int
    v_dim: int
    index_heads: int
    index_dim: int
    index_topk: int  # tokens
    pool: int  # tokens of a pool
    dense_width: int
    expert_width: int
    experts: int
    experts_per_token: int
    shared_experts: int
    limit: float  # clamp of SwiGLU
    routed_scale: float
    renormalise: bool
    mtp: bool

    @property
    def kda_width(self):
        return self.kda_heads * self.kda_dim

    @property
    def layer_count(self):
        return len(self.layers)

    def prefix(self, layer):
        """The MTP layer follows the decoder's."""
        return f"{PREFIX}layers.{layer}."


def load_config(path):
    path = Path(path)
    t = json.loads((path / "config.json" if path.is_dir() else path).read_text())["text_config"]
    linear = t["linear_attn_config"]
    kinds = zip([x == "linear_attention" for x in t["layer_types"]], [x == "sparse" for x in t["mlp_layer_types"]])
    return Config(
        vocab=t["vocab_size"], width=t["hidden_size"], layers=tuple(kinds), eps=t["rms_norm_eps"],
        streams=t["hc_mult"], sinkhorn=t["hc_sinkhorn_iters"], hc_eps=t["hc_eps"],
        kda_heads=linear["num_heads"], kda_dim=linear["head_dim"], gate_bound=linear["gate_lower_bound"],
        heads=t["num_attention_heads"], q_rank=t["q_lora_rank"], kv_rank=t["kv_lora_rank"], qk_dim=t["qk_nope_head_dim"],
        v_dim=t["v_head_dim"],
        index_heads=t["index_n_heads"], index_dim=t["index_head_dim"], index_topk=t["index_topk"], pool=t["index_kpool"],
        dense_width=t["intermediate_size"], expert_width=t["moe_intermediate_size"], experts=t["n_routed_experts"],
        experts_per_token=t["num_experts_per_tok"], shared_experts=t["n_shared_experts"], limit=t["swiglu_limit"],
        routed_scale=t["routed_scaling_factor"], renormalise=t["norm_topk_prob"], mtp=t["num_nextn_predict_layers"] > 0)
