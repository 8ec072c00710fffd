"""The MTP layer, and its recurrence of several steps trained for all positions of a row at once.

Row t takes token t + 1 and the final hidden vector of position t, and predicts token t + 2. Step k from row t takes token t + k and the
layer's own normed output of the step before, and predicts token t + k + 1. What a step attends to is what the engine lets it see
(`index_share_for_mtp_iteration`): the choice that the indexer made for row t, unchanged, and the rows of this round's own steps.
"""
import torch
import torch.nn.functional as F

from attention import FAR, SPARSE, causal, chosen_tokens, merge, by_row, project, rms_norm, scores_of, sparse_attention
from compiled import piece, wide
from config import PREFIX
from model import moe_layer

STEPS = 7


@piece
def step_input(embedded, hidden, enorm, hnorm, w_eh, norm, c):
    z = torch.cat([rms_norm(embedded, enorm, c.eps), rms_norm(hidden, hnorm, c.eps)], -1) @ w_eh.T
    return z, rms_norm(z, norm, c.eps)


@piece
def add_norm(z, y, norm, c):
    z = z + y
    return z, rms_norm(z, norm, c.eps)


@piece
def attend_with_drafts(q, k, v, draft_k, draft_v, seen, doc, mask, c):
    """The rows of step 1 as masked, and the first `seen` of the slots [slots, b * t, h, d] that hold this round's own rows."""
    q, k, v = by_row(q, doc), by_row(k, doc), by_row(v, doc)
    s = wide(scores_of(q, k, c)).masked_fill(~mask.unsqueeze(1), FAR)
    dk = draft_k.unflatten(1, tuple(doc.shape)).permute(1, 3, 2, 0, 4)  # [b, h, t, slots, d]
    dv = draft_v.unflatten(1, tuple(doc.shape)).permute(1, 3, 2, 0, 4)
    own = (wide(q * c.qk_dim**-0.5).unsqueeze(-2) * wide(dk)).sum(-1)
    own = own.masked_fill(torch.arange(own.shape[-1], device=own.device) >= seen, FAR)
    p = torch.softmax(torch.cat([s, own], -1), -1).to(v.dtype)
    t = s.shape[-1]
    return merge(p[..., :t] @ v + (wide(p[..., t:]).unsqueeze(-1) * wide(dv)).sum(-2).to(v.dtype))


@piece
def dense_mask(doc):
    return causal(doc)


@piece
def sparse_mask(chosen, doc, c):
    return chosen_tokens(chosen, doc, c.pool)


def shifted(x, by):
    """Entry t becomes entry t + by of the row; zero beyond its end."""
    return F.pad(x[:, by:], (0, by))


def draft(w, c, rows, hidden, mode=SPARSE, steps=STEPS):
    """hidden [n, width] of the decoder -> (post-norm vectors of each step [n, width], loss of the indexer or None, router loads)."""
    p = c.prefix(c.layer_count)
    outputs, keys, values, loads = [], [], [], None
    mask = loss = first = None
    for step in range(1, steps + 1):
        token = shifted(rows.tokens, step).flatten()
        embedded = F.embedding(token, w[PREFIX + "embed_tokens.weight"])
        z, u = step_input(embedded, outputs[-1] if outputs else hidden, w[p + "enorm.weight"], w[p + "hnorm.weight"],
                          w[p + "eh_proj.weight"], w[p + "input_layernorm.weight"], c)
        a = p + "self_attn."
        if step == 1:
            y, loss, chosen, first = sparse_attention(w, a, c, u, rows.doc, mode)
            mask = dense_mask(rows.doc) if chosen is None else sparse_mask(chosen, rows.doc, c)
        else:
            _, q, k, v = project(u, w[a + "q_a_proj.weight"], w[a + "q_a_layernorm.weight"], w[a + "q_b_proj.weight"],
                                 w[a + "kv_a_proj_with_mqa.weight"], w[a + "kv_a_layernorm.weight"], w[a + "kv_b_proj.weight"], c)
            keys.append(k)
            values.append(v)
            empty = [torch.zeros_like(k)] * (steps - 1 - len(keys))
            seen = torch.full((), len(keys), device=k.device)
            y = attend_with_drafts(q, first[2], first[3], torch.stack(keys + empty), torch.stack(values + empty), seen, rows.doc, mask, c)
            y = y @ w[a + "o_proj.weight"].T
        z, u = add_norm(z, y, w[p + "post_attention_layernorm.weight"], c)
        y, load = moe_layer(w, p + "mlp.", c, u)
        loads = load if loads is None else loads + load
        outputs.append(add_norm(z, y, w[p + "shared_head.norm.weight"], c)[1])
    return outputs, loss, {p + "mlp.gate.": loads}


@piece
def draft_loss(output, goal_hidden, w_head, weight):
    """Cross entropy to the target's own distribution -> (loss, share of equal choices), weighted."""
    logits = wide(output @ w_head.T)
    goal = wide(goal_hidden @ w_head.T)
    total = weight.sum().clamp_min(1e-6)
    loss = -(torch.softmax(goal, -1) * torch.log_softmax(logits, -1)).sum(-1)
    return (loss * weight).sum() / total, ((logits.argmax(-1) == goal.argmax(-1)) * weight).sum() / total


def draft_losses(outputs, hidden, w_head, rows):
    """Per step (loss, agreement): at row t, step k is compared with what the target says at row t + k, which predicts token t + k + 1."""
    found = []
    for step, output in enumerate(outputs, 1):
        goal = F.pad(hidden.unflatten(0, tuple(rows.doc.shape))[:, step:], (0, 0, 0, step)).flatten(0, 1)
        inside = F.pad(rows.doc[:, step + 1:] == rows.doc[:, :-step - 1], (0, step + 1))
        weight = shifted(rows.weight, step + 1) * inside
        found.append(draft_loss(output, goal, w_head, weight.flatten()))
    return found
