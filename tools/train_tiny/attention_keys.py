"""The two kinds of keys that a query attends to, and what the choice among blocks learns from."""

import math

import torch
import torch.nn.functional as F


class WindowKeys:
    """Raw KV of the sliding window. Long sequences are cut into chunks of one window: a chunk's
    queries see their own chunk and the one before."""

    def __init__(self, kv, window, tables):
        B, T, d = kv.shape
        self.chunks = T // window if T > 2 * window and T % window == 0 else 0
        self.kv = kv
        if self.chunks:
            before = F.pad(kv, (0, 0, window, 0))[:, :T].unflatten(1, (-1, window))
            self.kv = torch.cat([before, kv.unflatten(1, (-1, window))], 2)
        key = ("window", T, kv.device)
        if key not in tables:
            p = torch.arange(T, device=kv.device)
            if self.chunks:
                at = (
                    torch.arange(2 * window, device=kv.device)
                    - window
                    + (p // window * window)[:, None]
                )
            else:
                at = p.expand(T, T)
            distance = p[:, None] - at
            tables[key] = ~((distance >= 0) & (distance < window) & (at >= 0))[None, :, None]
        self.hidden = tables[key]

    def scores(self, q):
        """q [B, T, heads, d] fp32 -> [B, T, heads, keys] fp32, -inf where not seen"""
        B, T, H, _ = q.shape
        rows = q.unflatten(1, (self.chunks, -1)).flatten(2, 3) if self.chunks else q.flatten(1, 2)
        s = rows @ self.kv.float().transpose(-1, -2)
        return s.reshape(B, T, H, -1).masked_fill(self.hidden, -math.inf)

    def mix(self, probs):
        B, T, H, n = probs.shape
        rows = probs.reshape(B, self.chunks, -1, n) if self.chunks else probs.reshape(B, T * H, n)
        return weighted(rows, self.kv).reshape(B, T, H, -1)


class BlockKeys:
    """Compressed KV, [B, n, d], of which each query sees `chosen` [B or 1, T, n]."""

    def __init__(self, kv, chosen):
        self.kv, self.chosen = kv, chosen

    def scores(self, q):
        s = q.flatten(1, 2) @ self.kv.float().transpose(1, 2)
        return s.unflatten(1, q.shape[1:3]).masked_fill(~self.chosen.unsqueeze(2), -math.inf)

    def mix(self, probs):
        return weighted(probs.flatten(1, 2), self.kv).unflatten(1, probs.shape[1:3])


def weighted(probs, kv):
    probs = probs.bfloat16()
    return probs @ kv if kv.is_cuda else probs.float() @ kv.float()


def index_loss(scores, chosen, probs):
    """KL divergence from the attention's own distribution over blocks, summed over heads, to the
    softmax of the index scores: what teaches an indexer whose choice has no gradient. Queries count
    by how much of their attention goes to blocks at all."""
    target = probs.detach().float().sum(2)  # [B, T, n]
    mass = target.sum(-1, keepdim=True)
    target = target / mass.clamp_min(1e-6)
    log_q = torch.log_softmax(scores.masked_fill(~chosen, -1e4), -1)
    kl = (target * (target.clamp_min(1e-9).log() - log_q)).sum(-1)
    return (kl * mass.squeeze(-1)).sum() / mass.sum().clamp_min(1e-6)


@torch.no_grad()
def captured_mass(picks, probs):
    mass = probs.float().sum(2)
    return mass.gather(-1, picks).sum() / mass.sum().clamp_min(1e-6)
