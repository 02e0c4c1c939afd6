"""DeepSeek-V4 in PyTorch, differentiable, with every rounding of inference in the forward pass.

Written from the model specification, section 3, independently of the engine. It runs whole
sequences from position 0, [batch, length], and has no decode path: nothing loops over positions.
Activations are bf16 where inference rounds to bf16. Differences that training accepts are marked
"Training"; State.exact leaves them out.
"""

import json
import math
import pathlib

import torch
import torch.nn.functional as F

import checkpoint
import tokenwise
from attention_keys import BlockKeys, WindowKeys, captured_mass, index_loss
from numerics import index_quant, quantised
from tokenwise import (
    hc_head,
    hc_mix,
    matmul,
    matmul_f32,
    pool,
    quantise_kv,
    query_bf16,
    rms_norm,
    rope,
    router_score,
)


class Config:
    def __init__(self, path):
        c = self.raw = json.loads(pathlib.Path(path).read_text())
        self.vocab = c["vocab_size"]
        self.hidden = c["hidden_size"]
        self.layers = c["num_hidden_layers"]
        self.heads = c["num_attention_heads"]
        self.head_dim = c["head_dim"]
        self.rope_dim = c["qk_rope_head_dim"]
        self.q_lora = c["q_lora_rank"]
        self.o_groups = c["o_groups"]
        self.o_lora = c["o_lora_rank"]
        self.window = c["sliding_window"]
        self.ratios = c["compress_ratios"]
        self.index_heads = c["index_n_heads"]
        self.index_dim = c["index_head_dim"]
        self.index_topk = c["index_topk"]
        self.experts = c["n_routed_experts"]
        self.active = c["num_experts_per_tok"]
        self.inter = c["moe_intermediate_size"]
        self.hash_layers = c["num_hash_layers"]
        self.route_scale = c["routed_scaling_factor"]
        self.limit = c["swiglu_limit"]
        self.hc = c["hc_mult"]
        self.sinkhorn = c["hc_sinkhorn_iters"]
        self.hc_eps = c["hc_eps"]
        self.eps = c["rms_norm_eps"]
        self.theta = c["rope_theta"]
        self.compress_theta = c["compress_rope_theta"]
        self.yarn = c["rope_scaling"]
        self.mtp = c.get("num_nextn_predict_layers", 0)


# --------------------------------------------------------------------------------------- the model
class Model(torch.nn.Module):
    """`weight(name)` is the fp32 master weight under its official name; a layer's experts are one
    tensor [experts, rows, columns] named layers.L.ffn.experts.w1.weight."""

    def __init__(self, config, device="cpu", seed=0):
        super().__init__()
        self.c = config
        self.kinds = {}
        self.params = torch.nn.ParameterDict()
        self.fixed = {}  # not trained by gradients: tid2eid, gate.bias
        generator = torch.Generator().manual_seed(seed)
        shapes = {}
        for name, kind, shape in checkpoint.tensor_table(config):
            stack, expert = checkpoint.expert_stack(name)
            self.kinds[stack] = kind
            shapes[stack] = shape if expert is None else (config.experts, *shape)
        for name, shape in shapes.items():
            value = initial_value(config, name, self.kinds[name], shape, generator)
            if name.endswith(("gate.bias", "gate.tid2eid")):
                self.fixed[name] = value.to(device)
            else:
                self.params[name.replace(".", "/")] = torch.nn.Parameter(value.to(device))
        self.device = torch.device(device)
        self.tables = {}

    def weight(self, name):
        return self.fixed[name] if name in self.fixed else self.params[name.replace(".", "/")]

    def stored(self):
        """name -> the weight as it will be stored: bf16 values of FP8, FP4 and BF16, else fp32."""
        out = dict(self.fixed)
        for key, w in self.params.items():
            name = key.replace("/", ".")
            kind = self.kinds[name]
            out[name] = (
                quantised(w, kind)
                if kind in ("fp8", "fp4")
                else w if kind == "f32" else w.bfloat16()
            )
        return out

    # -- rope tables, [batch · length, rope_dim / 2], for every `step`-th position
    def rope_table(self, batch, length, ratio, step=1):
        key = (batch, length, bool(ratio), step)
        if key not in self.tables:
            position = torch.arange(length, dtype=torch.float32) * step
            angle = torch.outer(position, rope_frequencies(self.c, ratio))  # the fp32 product
            self.tables[key] = tuple(
                t.to(self.device).repeat(batch, 1) for t in (angle.cos(), angle.sin())
            )
        return self.tables[key]

    def compress(self, x, w, p, ratio, d):
        """x [B, T, hidden] -> [B · (T // ratio), d], normed and turned, not yet quantised"""
        n = x.shape[1] // ratio
        x = x[:, : n * ratio]
        k = matmul_f32(x, w[p + ".wkv.weight"]).unflatten(1, (n, ratio))
        s = matmul_f32(x, w[p + ".wgate.weight"]).unflatten(1, (n, ratio)) + w[p + ".ape"]
        if ratio == 4:  # overlapping: the previous block's first half, this block's second
            k = torch.cat([F.pad(k[:, :-1, :, :d], (0, 0, 0, 0, 1, 0)), k[..., d:]], 2)
            s = torch.cat(
                [F.pad(s[:, :-1, :, :d], (0, 0, 0, 0, 1, 0), value=-math.inf), s[..., d:]], 2
            )
        y = rms_norm(pool(k, s).flatten(0, 1), w[p + ".norm.weight"], self.c.eps)
        return rope(y, *self.rope_table(x.shape[0], n, ratio, ratio))

    def index_scores(self, x, qr, w, p, ratio):
        """x [B, T, hidden], qr [B·T, q_lora] -> [B, T, blocks] fp32"""
        c = self.c
        B, T, _ = x.shape
        q = matmul(tokenwise.act_quant(qr), w[p + ".wq_b.weight"]).unflatten(
            -1, (c.index_heads, c.index_dim)
        )
        q = index_quant(self.hadamard(rope(q, *self.rope_table(B, T, ratio)))).view(
            B, T * c.index_heads, c.index_dim
        )
        k = index_quant(
            self.hadamard(self.compress(x, w, p + ".compressor", ratio, c.index_dim))
        ).unflatten(0, (B, -1))
        weights = (
            matmul(x, w[p + ".weights_proj.weight"]).float() * (c.index_dim * c.index_heads) ** -0.5
        )
        # One key for all heads: heads are rows. [B, T·heads, n]
        dots = torch.relu(q.float() @ k.float().transpose(1, 2)).unflatten(1, (T, c.index_heads))
        return (dots * weights.bfloat16().float().unsqueeze(-1)).sum(2)

    def hadamard(self, x):
        key = ("hadamard", x.shape[-1])
        if key not in self.tables:
            h = torch.ones(1, 1)
            while h.shape[0] < x.shape[-1]:
                h = torch.cat([torch.cat([h, h], 1), torch.cat([h, -h], 1)], 0)
            self.tables[key] = h.to(self.device)
        return (matmul_f32(x, self.tables[key]) * x.shape[-1] ** -0.5).bfloat16()

    def attention(self, x, w, layer, p, state):
        c, ratio = self.c, self.c.ratios[layer]
        B, T, _ = x.shape
        cos, sin = self.rope_table(B, T, ratio)
        xq = tokenwise.act_quant(x.flatten(0, 1))
        qr = rms_norm(matmul(xq, w[p + ".wq_a.weight"]), w[p + ".q_norm.weight"], c.eps)
        q = matmul(tokenwise.act_quant(qr), w[p + ".wq_b.weight"]).unflatten(
            -1, (c.heads, c.head_dim)
        )
        q = (query_bf16 if state.exact else tokenwise.query)(q, cos, sin, c.eps).unflatten(
            0, (B, T)
        )
        kv = tokenwise.latent_kv(
            matmul(xq, w[p + ".wkv.weight"]), w[p + ".kv_norm.weight"], cos, sin, c.eps, c.rope_dim
        )
        kv = kv.unflatten(0, (B, T))
        state.keep(p, "q", q)
        state.keep(p, "kv", kv)
        keys = [WindowKeys(kv, c.window, self.tables)]
        if ratio and T >= ratio:
            comp = quantise_kv(
                self.compress(x, w, p + ".compressor", ratio, c.head_dim), c.rope_dim
            ).unflatten(0, (B, -1))
            state.keep(p, "compressed", comp)
            n = comp.shape[1]
            visible = self.visible_blocks(T, n, ratio)
            chosen = visible
            if ratio == 4 and (n > c.index_topk or state.trace is not None):
                # The indexer learns from the attention alone (training: index_loss).
                scores = self.index_scores(x.detach(), qr.detach(), w, p + ".indexer", ratio)
                scores = scores.masked_fill(~visible, -math.inf)
                state.keep(p, "index_score", scores)
                picks = scores.detach().topk(min(c.index_topk, n), -1).indices
                if state.sparse and n > c.index_topk:
                    chosen = (
                        torch.zeros_like(scores, dtype=torch.bool).scatter_(-1, picks, True)
                        & visible
                    )
            keys.append(BlockKeys(comp, chosen))
        qf = q.float()
        rows = [k.scores(qf) * c.head_dim**-0.5 for k in keys]
        sizes = [r.shape[-1] for r in rows]
        sink = w[p + ".attn_sink"].view(1, 1, c.heads, 1).expand(B, T, c.heads, 1)
        if state.exact:
            rows = torch.cat(rows, -1)
            top = rows.amax(-1, keepdim=True)
            e = torch.exp(rows - top)
            parts = e.split(sizes, -1)
            o = sum(k.mix(part) for k, part in zip(keys, parts)) / (
                e.sum(-1, keepdim=True) + torch.exp(sink - top)
            )
        else:  # Training: bf16 rounds the normalised weights, not the unnormalised.
            parts = torch.softmax(torch.cat(rows + [sink], -1), -1).split(sizes + [1], -1)
            o = sum(k.mix(part) for k, part in zip(keys, parts))
        if len(keys) == 2 and ratio == 4 and n > c.index_topk and state.losses is not None:
            state.losses.append(index_loss(scores, chosen, parts[1]))
            if not state.sparse:
                state.captured.append(captured_mass(picks, parts[1]))
        o = tokenwise.unrope(o.bfloat16().flatten(0, 1), cos, sin)
        state.keep(p, "o", o.unflatten(0, (B, T)))
        # wo_a sees bf16, not FP8. Groups are batches: [groups, B·T, ·]
        o = o.reshape(B * T, c.o_groups, -1).transpose(0, 1)
        wa = w[p + ".wo_a.weight"].unflatten(0, (c.o_groups, c.o_lora)).transpose(1, 2)
        y = torch.bmm(o, wa) if o.is_cuda else torch.bmm(o.float(), wa.float()).bfloat16()
        y = y.transpose(0, 1).reshape(B * T, -1)
        return matmul(tokenwise.act_quant(y), w[p + ".wo_b.weight"]).unflatten(0, (B, T))

    def visible_blocks(self, T, n, ratio):
        """[1, T, n]: block j is visible from the token that completes it on."""
        key = ("visible", T, n, ratio)
        if key not in self.tables:
            complete = (torch.arange(T) + 1) // ratio
            self.tables[key] = (torch.arange(n) < complete[:, None])[None].to(self.device)
        return self.tables[key]

    def moe(self, z, ids, w, layer, p, state):
        """z [tokens, hidden], ids [tokens]"""
        c = self.c
        scores = router_score(matmul_f32(z, w[p + ".gate.weight"]))
        if layer < c.hash_layers:
            experts = w[p + ".gate.tid2eid"][ids]
        else:
            experts = (scores.detach() + w[p + ".gate.bias"]).topk(c.active, -1).indices
        chosen = scores.gather(-1, experts)
        chosen = chosen / chosen.sum(-1, keepdim=True) * c.route_scale
        if layer >= c.hash_layers and state.loads is not None:
            counts = state.valid.flatten().unsqueeze(-1).expand_as(experts).float()
            state.loads[p + ".gate.bias"] = torch.zeros_like(w[p + ".gate.bias"]).index_add_(
                0, experts.flatten(), counts.flatten()
            )
        # Every expert runs on every token, with weight 0 where it was not chosen. Training: the
        # experts' outputs are summed before the rounding to bf16, not after.
        alpha = torch.zeros_like(scores).scatter(-1, experts, chosen)
        zq = tokenwise.act_quant(z)
        shape = (c.experts, c.inter)
        g = matmul(zq, w[p + ".experts.w1.weight"].flatten(0, 1)).unflatten(-1, shape)
        v = matmul(zq, w[p + ".experts.w3.weight"].flatten(0, 1)).unflatten(-1, shape)
        h = tokenwise.swiglu(g, v, alpha.unsqueeze(-1), c.limit).flatten(-2)
        w2 = w[p + ".experts.w2.weight"]  # [experts, hidden, inter]
        if state.exact:
            h = h.unflatten(-1, shape).float()
            routed = torch.einsum("tei,eoi->teo", h, w2.float()).bfloat16().float().sum(1)
        else:
            routed = matmul(h, w2.transpose(0, 1).flatten(1))
        s = p + ".shared_experts"
        h = tokenwise.swiglu(
            matmul(zq, w[s + ".w1.weight"]), matmul(zq, w[s + ".w3.weight"]), None, c.limit
        )
        return (routed.float() + matmul(h, w[s + ".w2.weight"]).float()).bfloat16()

    def hyper(self, x, w, p, norm):
        c = self.c
        return tokenwise.hc_pre(
            x,
            hc_mix(x, w[p + "_fn"], c.eps),
            w[p + "_scale"],
            w[p + "_base"],
            w[norm],
            c.hc,
            c.sinkhorn,
            c.hc_eps,
            c.eps,
        )

    def block(self, x, ids, w, layer, p, state):
        """x [B · T, hc, hidden], ids [B, T]"""
        u, post, comb = self.hyper(x, w, p + ".hc_attn", p + ".attn_norm.weight")
        y = self.attention(u.unflatten(0, ids.shape), w, layer, p + ".attn", state).flatten(0, 1)
        x = tokenwise.hc_post(y, x, post, comb)
        u, post, comb = self.hyper(x, w, p + ".hc_ffn", p + ".ffn_norm.weight")
        return tokenwise.hc_post(
            self.moe(u, ids.flatten(), w, layer, p + ".ffn", state), x, post, comb
        )

    def head(self, x, w, p, norm):
        return hc_head(
            x,
            hc_mix(x, w[p + "hc_head_fn"], self.c.eps),
            w[p + "hc_head_scale"],
            w[p + "hc_head_base"],
            w[norm],
            self.c.hc_eps,
            self.c.eps,
        )

    def trunk(self, ids, w, state):
        """ids [B, T] -> 4-stream state after the last layer [B, T, hc, hidden] bf16"""
        x = F.embedding(ids.flatten(), w["embed.weight"]).unsqueeze(1).repeat(1, self.c.hc, 1)
        for layer in range(self.c.layers):
            x = self.block(x, ids, w, layer, f"layers.{layer}", state)
        return x.unflatten(0, ids.shape)

    def final(self, x, w):
        """-> normed hidden [B, T, hidden] bf16; logits() of it are the model's"""
        return self.head(x, w, "", "norm.weight")

    def logits(self, u, w):
        return matmul_f32(u, w["head.weight"])

    def draft(self, x, next_ids, w, state):
        """MTP block: state at p and the token at p + 1 -> normed hidden that tells token p + 2."""
        p, c = "mtp.0", self.c
        x = x.flatten(0, 1)
        e = rms_norm(
            F.embedding(next_ids.flatten(), w["embed.weight"]), w[p + ".enorm.weight"], c.eps
        )
        h = rms_norm(x, w[p + ".hnorm.weight"], c.eps)
        y = matmul(tokenwise.act_quant(e), w[p + ".e_proj.weight"]).unsqueeze(1) + matmul(
            tokenwise.act_quant(h), w[p + ".h_proj.weight"]
        )
        y = self.block(y, next_ids, w, c.layers, p, state).unflatten(0, next_ids.shape)
        return self.head(y, w, p + ".", p + ".norm.weight")


class State:
    """What a forward pass is told and collects."""

    def __init__(self, sparse=True, exact=False, losses=None, loads=None, valid=None, trace=None):
        self.sparse = sparse  # False: attend to all blocks, as at the start of training
        self.exact = exact  # the rounding of attention weights and of the heads' norm as inference
        # has it, instead of what training makes of it
        self.losses = losses  # list: gets the indexers' losses
        self.captured = (
            []
        )  # where all blocks are attended to: share of it on those the indexer would choose
        self.loads = (
            loads  # dict: gate.bias name -> tokens of each expert, of those that are `valid`
        )
        self.valid = valid
        self.trace = trace  # dict: gets intermediates

    def keep(self, p, name, value):
        if self.trace is not None:
            self.trace[f"{p.removesuffix('.attn')}.{name}"] = value.detach()


def rope_frequencies(c, ratio):
    """[rope_dim / 2] fp32; YaRN where the layer compresses."""
    d = c.rope_dim
    base = c.compress_theta if ratio else c.theta
    f = 1.0 / (base ** (torch.arange(0, d, 2, dtype=torch.float32) / d))
    if ratio:

        def corner(rotations):
            return (
                d
                * math.log(c.yarn["original_max_position_embeddings"] / (rotations * 2 * math.pi))
                / (2 * math.log(base))
            )

        low = max(math.floor(corner(c.yarn["beta_fast"])), 0)
        high = min(math.ceil(corner(c.yarn["beta_slow"])), d - 1)
        ramp = ((torch.arange(d // 2, dtype=torch.float32) - low) / ((high - low) or 0.001)).clamp(
            0, 1
        )
        f = f / c.yarn["factor"] * ramp + f * (1 - ramp)
    return f


def initial_value(c, name, kind, shape, generator):
    def normal(std):
        return torch.randn(shape, generator=generator) * std

    if kind == "norm":
        return torch.ones(shape)
    if kind == "tid2eid":  # distinct experts, each token its own
        return torch.rand(shape[0], c.experts, generator=generator).topk(shape[1], -1).indices
    if name.endswith(("gate.bias", "attn_sink", ".ape")):
        return torch.zeros(shape)
    if name.endswith("_scale"):
        return torch.full(shape, 0.1)
    if name.endswith("hc_head_base"):
        return torch.full(shape, math.log(1 / (c.hc - 1)))
    if name.endswith("_base"):
        # The streams start as one residual: read a mean, write to all, and stay apart from each
        # other; the noise is what lets them become different.
        pre, post = torch.full((c.hc,), math.log(1 / (c.hc - 1))), torch.zeros(c.hc)
        comb = 4 * torch.eye(c.hc).flatten()
        return torch.cat([pre, post, comb]) + normal(0.3)
    if name.endswith("_fn"):
        return normal(shape[-1] ** -0.5)
    if name == "embed.weight":
        return normal(0.5)
    if name == "head.weight":
        return normal(c.hidden**-0.5)
    fan_in = shape[-1]
    # What is added to the residual starts small.
    quiet = 0.5 if name.endswith(("wo_b.weight", "w2.weight")) else 1.0
    return normal(quiet * fan_in**-0.5)
