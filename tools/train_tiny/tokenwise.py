"""The parts of the model that work on one token: [tokens, ..., channels], and their compilation.

Products of bf16 values are exact in fp32, so a bf16 or TF32 matrix product differs from the
reference only by summation order and, for a few results, by one rounding to bf16.
"""

import torch
import torch._inductor.config
import torch.nn.functional as F

import numerics
from numerics import KV_GROUP, act_quant


def matmul(x, w):
    """bf16 x · bf16 wᵀ -> bf16, fp32 inside. A CPU has no such unit: there the sum is plain fp32."""
    if x.is_cuda:
        return F.linear(x, w)
    return F.linear(x.float(), w.float()).bfloat16()


def matmul_f32(x, w):
    """The same with an fp32 result (TF32 on the device: bf16 values lose nothing)."""
    return F.linear(x.float(), w.float())


def rms_norm(x, weight, eps):
    x = x.float()
    y = x * torch.rsqrt(x.square().mean(-1, keepdim=True) + eps)
    return (y if weight is None else y * weight.float()).bfloat16()


def rope(x, cos, sin):
    """Turns the interleaved pairs of the last dims; cos, sin: [tokens, rope_dim / 2]."""
    while cos.dim() < x.dim():
        cos, sin = cos.unsqueeze(1), sin.unsqueeze(1)
    n = 2 * cos.shape[-1]
    a, b = x[..., -n:].float().unflatten(-1, (-1, 2)).unbind(-1)
    turned = torch.stack([a * cos - b * sin, a * sin + b * cos], -1).flatten(-2).bfloat16()
    return torch.cat([x[..., :-n], turned], -1)


def unrope(x, cos, sin):
    return rope(x, cos, -sin)


def quantise_kv(x, rope_dim):
    """The KV cache's rounding: FP8 but for the rope dims."""
    return torch.cat([numerics.act_quant(x[..., :-rope_dim], KV_GROUP), x[..., -rope_dim:]], -1)


def query(q, cos, sin, eps):
    """Norm of each head without a weight, and rope. q: [..., heads, head_dim]"""
    return rope(rms_norm(q, None, eps), cos, sin)


def query_bf16(q, cos, sin, eps):
    """The same with every step of the norm rounded to bf16, as the official code does."""
    mean = q.float().square().bfloat16().float().mean(-1, keepdim=True).bfloat16().float()
    r = torch.rsqrt((mean + eps).bfloat16().float()).bfloat16().float()
    return rope((q.float() * r).bfloat16(), cos, sin)


def latent_kv(y, weight, cos, sin, eps, rope_dim):
    return quantise_kv(rope(rms_norm(y, weight, eps), cos, sin), rope_dim)


def hc_mix(x, fn, eps):
    flat = x.flatten(-2).float()
    r = torch.rsqrt(flat.square().mean(-1, keepdim=True) + eps)
    return F.linear(flat, fn) * r


def hc_pre(x, mix, scale, base, norm, hc, iters, hc_eps, eps):
    """x: [..., hc, hidden], mix: hc_mix of it -> (normed sublayer input, post [..., hc], comb
    [..., source, destination])"""
    m = mix
    pre = torch.sigmoid(m[..., :hc] * scale[0] + base[:hc]) + hc_eps
    post = 2 * torch.sigmoid(m[..., hc : 2 * hc] * scale[1] + base[hc : 2 * hc])
    comb = (m[..., 2 * hc :] * scale[2] + base[2 * hc :]).unflatten(-1, (hc, hc))
    comb = torch.softmax(comb, -1) + hc_eps
    comb = comb / (comb.sum(-2, keepdim=True) + hc_eps)
    for _ in range(iters - 1):
        comb = comb / (comb.sum(-1, keepdim=True) + hc_eps)
        comb = comb / (comb.sum(-2, keepdim=True) + hc_eps)
    u = (pre.unsqueeze(-1) * x.float()).sum(-2).bfloat16()
    return rms_norm(u, norm, eps), post, comb


def hc_post(y, x, post, comb):
    """X'_k = post_k y + Σ_j comb_jk X_j. Sums over the few streams, not a matrix product: comb is
    fp32 and TF32 would cut it."""
    mixed = (comb.unsqueeze(-1) * x.float().unsqueeze(-2)).sum(-3)
    return (post.unsqueeze(-1) * y.float().unsqueeze(-2) + mixed).bfloat16()


def hc_head(x, mix, scale, base, norm, hc_eps, eps):
    pre = torch.sigmoid(mix * scale + base) + hc_eps
    u = (pre.unsqueeze(-1) * x.float()).sum(-2).bfloat16()
    return rms_norm(u, norm, eps)


def swiglu(g, v, alpha, limit):
    """fp32 inside; alpha (or None) multiplies before the rounding. Ends quantised for w2."""
    g, v = g.float(), v.float()
    if limit:
        g, v = g.clamp_max(limit), v.clamp(-limit, limit)
    h = F.silu(g) * v
    return numerics.act_quant((h if alpha is None else h * alpha).bfloat16())


def router_score(z):
    return torch.sqrt(F.softplus(z))


def pool(k, s):
    """Per-channel softmax over the rows of a block. k, s: [..., rows, channels] fp32"""
    return (torch.softmax(s, -2) * k).sum(-2).bfloat16()


# The functions that move the most memory. Tokens are their first dimension, so they see one shape
# whatever the length of sequences, and are compiled once.
FUSED = (query, latent_kv, hc_pre, hc_post, swiglu, unrope, act_quant)
_EAGER = {function.__name__: function for function in FUSED}
_COMPILED = {}


def use_compiled(on):
    """Fuses the functions above, or not. Compiled forms are kept for the next time."""
    if on and not _COMPILED:
        torch._dynamo.config.cache_size_limit = 64
        # Else a rounding to bf16 inside a fused kernel is left out.
        torch._inductor.config.emulate_precision_casts = True
        _COMPILED.update({name: torch.compile(f, dynamic=False) for name, f in _EAGER.items()})
    globals().update(_COMPILED if on else _EAGER)
