"""Muon for matrices of the layers, Adam for everything else (embedding, head, norms, gates, mappings, convolutions)."""
import torch


def orthogonalised(g, steps=5):
    """Newton-Schulz towards the nearest semi-orthogonal matrix; g [..., n, k]."""
    tall = g.shape[-2] > g.shape[-1]
    x = (g.mT if tall else g).to(torch.bfloat16 if g.is_cuda else torch.float32)
    x = x / (x.norm(dim=(-2, -1), keepdim=True) + 1e-7)
    for _ in range(steps):
        a = x @ x.mT
        x = 3.4445 * x + (-4.7750 * a + 2.0315 * a @ a) @ x
    return (x.mT if tall else x).float()


def wants_muon(name, w):
    plain = ("embed_tokens", "lm_head", "mlp.gate.weight", "conv1d", "hc_", "compress_ape", "codebook", "base_kernel", "kernel_projection")
    return w.dim() >= 2 and not any(x in name for x in plain)


class Optimiser:
    """`names` are trained, the rest stays. Rates are given per step: step(muon_rate, adam_rate)."""

    def __init__(self, masters, names, decay=0.02, momentum=0.95, betas=(0.9, 0.95)):
        self.decay, self.momentum = decay, momentum
        self.names = list(names)
        self.all = [masters[n] for n in self.names]
        by_shape, rest = {}, []
        for n in self.names:
            w = masters[n]
            if wants_muon(n, w):
                by_shape.setdefault(tuple(w.shape), []).append(w)
            else:
                rest.append(w)
        self.groups = list(by_shape.values())
        self.buffers = [torch.zeros(len(g), *g[0].shape, device=g[0].device) for g in self.groups]
        self.adam = torch.optim.Adam(rest, lr=1.0, betas=betas, eps=1e-10, fused=rest[0].is_cuda) if rest else None

    @torch.no_grad()
    def step(self, muon_rate, adam_rate, clip=1.0):
        grads = [w.grad for w in self.all if w.grad is not None]
        norm = torch.nn.utils.get_total_norm(grads)
        torch._foreach_mul_(grads, (clip / (norm + 1e-6)).clamp(max=1.0))
        for weights, buffer in zip(self.groups, self.buffers):
            g = torch.stack([w.grad if w.grad is not None else torch.zeros_like(w) for w in weights])
            buffer.lerp_(g, 1 - self.momentum)
            n, k = g.shape[-2:]
            update = orthogonalised(g.lerp(buffer, self.momentum)) * (max(n, k) ** 0.5 * 0.2)
            torch._foreach_mul_(weights, 1 - muon_rate * self.decay)
            torch._foreach_add_(weights, list(update.unbind(0)), alpha=-muon_rate)
        if self.adam is not None:
            self.adam.param_groups[0]["lr"] = adam_rate
            self.adam.step()
        for w in self.all:
            w.grad = None
        return norm
