"""The number formats of a DeepSeek-V4 checkpoint, rounding exactly as inference does.

Everything that rounds passes gradients straight through, so that a model trained with these
functions has already seen the rounding it is run with. All scales are powers of two.
"""

import torch

FP8_MAX, FP4_MAX = 448.0, 6.0
KV_GROUP, ACT_GROUP, FP4_GROUP, WEIGHT_BLOCK = 64, 128, 32, 128
# Floors of a group's largest magnitude. Activations: model specification 3.1. Weights: ours, so that
# a block of zeros has a scale that e8m0 can hold.
ACT_FLOOR, INDEX_FLOOR, WEIGHT_FLOOR = 1e-4, 6 * 2.0**-126, 1e-30


def pow2_ceil(x):
    """The least power of two that is not below x; x is fp32, positive and normal."""
    bits = x.float().view(torch.int32)
    exponent = (bits >> 23) + ((bits & 0x7FFFFF) != 0).to(torch.int32)
    return (exponent << 23).view(torch.float32)


def inverse(s):
    """1 / s of a power of two, exact: a compiler may divide approximately."""
    return ((254 << 23) - s.view(torch.int32)).view(torch.float32)


def round_fp8(x):
    """fp32 within ±448 to the nearest e4m3 value, ties to even; stays fp32. In arithmetic, not by
    casts, because a compiler may leave out a cast that another cast undoes."""
    exponent = ((x.view(torch.int32) >> 23) & 0xFF).clamp_min(127 - 6)
    step = ((exponent - 3) << 23).view(torch.float32)
    return torch.round(x * inverse(step)) * step


def round_fp4(x):
    """fp32 within ±6 to the nearest e2m1 value, ties to even; stays fp32."""
    a = x.abs()
    step = torch.where(a < 2, 0.5, torch.where(a < 4, 1.0, 2.0))
    return torch.round(x * (1 / step)) * step


def group_scale(x, top, floor):
    """Scale of the last dimension's values: 2^ceil(log2(amax / top)), keeping the dimension."""
    amax = x.abs().amax(-1, keepdim=True).float().clamp_min(floor)
    return pow2_ceil(amax * (1.0 / top))


class _ActQuant(torch.autograd.Function):
    """FP8 round trip in groups of the last dimension; `dims` leading channels, the rest is kept."""

    @staticmethod
    def forward(ctx, x, group):
        v = x.float().unflatten(-1, (-1, group))
        s = group_scale(v, FP8_MAX, ACT_FLOOR)
        return (round_fp8((v * inverse(s)).clamp(-FP8_MAX, FP8_MAX)) * s).flatten(-2).to(x.dtype)

    @staticmethod
    def backward(ctx, grad):
        return grad, None


class _IndexQuant(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        v = x.float().unflatten(-1, (-1, FP4_GROUP))
        s = group_scale(v, FP4_MAX, INDEX_FLOOR)
        return (round_fp4((v * inverse(s)).clamp(-FP4_MAX, FP4_MAX)) * s).flatten(-2).to(x.dtype)

    @staticmethod
    def backward(ctx, grad):
        return grad


def act_quant(x, group=ACT_GROUP):
    return _ActQuant.apply(x, group)


def index_quant(x):
    return _IndexQuant.apply(x)


def _blocks(w):
    """[..., rows, columns] as [..., row blocks, column blocks, 128 * 128], padded with zeros."""
    rows, columns = w.shape[-2:]
    pad = (0, -columns % WEIGHT_BLOCK, 0, -rows % WEIGHT_BLOCK)
    w = torch.nn.functional.pad(w, pad) if any(pad) else w
    w = w.unflatten(-1, (-1, WEIGHT_BLOCK)).unflatten(-3, (-1, WEIGHT_BLOCK))
    return w.transpose(-2, -3).flatten(-2)


def fp8_weight(w):
    """-> codes as fp32 e4m3 values [..., rows, columns], scales [..., row blocks, column blocks]"""
    rows, columns = w.shape[-2:]
    blocks = _blocks(w.float())
    s = group_scale(blocks, FP8_MAX, WEIGHT_FLOOR)
    q = round_fp8((blocks * inverse(s)).clamp(-FP8_MAX, FP8_MAX)).unflatten(
        -1, (WEIGHT_BLOCK, WEIGHT_BLOCK)
    )
    q = q.transpose(-2, -3).flatten(-2).flatten(-3, -2)
    return q[..., :rows, :columns], s.squeeze(-1)


def fp4_weight(w):
    """-> codes as fp32 e2m1 values [..., rows, columns], scales [..., rows, columns / 32]"""
    groups = w.float().unflatten(-1, (-1, FP4_GROUP))
    s = group_scale(groups, FP4_MAX, WEIGHT_FLOOR)
    return round_fp4((groups * inverse(s)).clamp(-FP4_MAX, FP4_MAX)).flatten(-2), s.squeeze(-1)


def scale_blocks(q, s):
    """Values of fp8 codes under the scales of their 128x128 blocks."""
    rows, columns = q.shape[-2:]
    s = s.repeat_interleave(WEIGHT_BLOCK, -2).repeat_interleave(WEIGHT_BLOCK, -1)
    return q * s[..., :rows, :columns]


class _WeightQuant(torch.autograd.Function):
    """The bf16 value (exact) of the weight as it will be stored."""

    @staticmethod
    def forward(ctx, w, kind):
        if kind == "fp8":
            return scale_blocks(*fp8_weight(w)).bfloat16()
        q, s = fp4_weight(w)
        return (q.unflatten(-1, (-1, FP4_GROUP)) * s.unsqueeze(-1)).flatten(-2).bfloat16()

    @staticmethod
    def backward(ctx, grad):
        return grad.float(), None


def quantised(w, kind):
    """kind: fp8 or fp4. fp32 master weight -> bf16 value of its stored form."""
    return _WeightQuant.apply(w, kind)


def e8m0(scale):
    """Powers of two as E8M0 bytes."""
    return (scale.contiguous().view(torch.int32) >> 23).to(torch.uint8)


def e8m0_values(scale_bytes):
    return (scale_bytes.int() << 23).view(torch.float32)


E2M1 = (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0)


def e2m1_nibbles(q):
    """fp32 e2m1 values -> packed bytes along the last dimension, the even column in the low nibble."""
    codes = torch.bucketize(q.abs(), torch.tensor(E2M1, device=q.device)).to(torch.uint8)
    codes |= (torch.signbit(q)).to(torch.uint8) << 3
    return codes[..., 0::2] | (codes[..., 1::2] << 4)


def e2m1_values(packed):
    table = torch.tensor(E2M1 + tuple(-v for v in E2M1), device=packed.device)
    return torch.stack([table[(packed & 15).long()], table[(packed >> 4).long()]], -1).flatten(-2)
