"""Official checkpoint folders: tensor table, safetensors shards, export and import of the model.

The files hold what model specification 2.2 lists, under the official names. Master weights are
quantised here by the very functions that the forward pass trains with, so what is written is what
was trained.
"""

import json
import pathlib
import shutil
import struct

import torch

import numerics

SHARD_BYTES = 15 << 20  # files that travel are often bounded by 16 MiB
_DTYPES = {
    "BF16": torch.bfloat16,
    "F32": torch.float32,
    "I64": torch.int64,
    "F8_E4M3": torch.uint8,
    "F8_E8M0": torch.uint8,
    "I8": torch.uint8,
}


def tensor_table(c):
    """Yields (name, kind, shape): kind is bf16, norm, f32, fp8, fp4 or tid2eid, shape the logical
    one. The experts of a layer are one entry each, as they are stored."""
    D, width = c.hidden, c.heads * c.head_dim

    def compressor(p, ratio, d):
        w = d * (2 if ratio == 4 else 1)
        yield p + ".ape", "f32", (ratio, w)
        yield p + ".wkv.weight", "bf16", (w, D)
        yield p + ".wgate.weight", "bf16", (w, D)
        yield p + ".norm.weight", "norm", (d,)

    def block(p, layer):
        a, f, ratio = p + ".attn", p + ".ffn", c.ratios[layer]
        yield a + ".attn_sink", "f32", (c.heads,)
        yield a + ".wq_a.weight", "fp8", (c.q_lora, D)
        yield a + ".q_norm.weight", "norm", (c.q_lora,)
        yield a + ".wq_b.weight", "fp8", (width, c.q_lora)
        yield a + ".wkv.weight", "fp8", (c.head_dim, D)
        yield a + ".kv_norm.weight", "norm", (c.head_dim,)
        yield a + ".wo_a.weight", "fp8", (c.o_groups * c.o_lora, width // c.o_groups)
        yield a + ".wo_b.weight", "fp8", (D, c.o_groups * c.o_lora)
        if ratio:
            yield from compressor(a + ".compressor", ratio, c.head_dim)
        if ratio == 4:
            yield a + ".indexer.wq_b.weight", "fp8", (c.index_heads * c.index_dim, c.q_lora)
            yield a + ".indexer.weights_proj.weight", "bf16", (c.index_heads, D)
            yield from compressor(a + ".indexer.compressor", ratio, c.index_dim)
        yield f + ".gate.weight", "bf16", (c.experts, D)
        if layer < c.hash_layers:
            yield f + ".gate.tid2eid", "tid2eid", (c.vocab, c.active)
        else:
            yield f + ".gate.bias", "f32", (c.experts,)
        mlp = (("w1", c.inter, D), ("w2", D, c.inter), ("w3", c.inter, D))
        for e in range(c.experts):
            for n, rows, columns in mlp:
                yield f"{f}.experts.{e}.{n}.weight", "fp4", (rows, columns)
        for n, rows, columns in mlp:
            yield f"{f}.shared_experts.{n}.weight", "fp8", (rows, columns)
        yield p + ".attn_norm.weight", "norm", (D,)
        yield p + ".ffn_norm.weight", "norm", (D,)
        for w in ("hc_attn", "hc_ffn"):
            mix = (2 + c.hc) * c.hc
            yield f"{p}.{w}_fn", "f32", (mix, c.hc * D)
            yield f"{p}.{w}_base", "f32", (mix,)
            yield f"{p}.{w}_scale", "f32", (3,)

    def head(p):
        yield p + "hc_head_fn", "f32", (c.hc, c.hc * D)
        yield p + "hc_head_base", "f32", (c.hc,)
        yield p + "hc_head_scale", "f32", (1,)

    yield "embed.weight", "bf16", (c.vocab, D)
    for layer in range(c.layers):
        yield from block(f"layers.{layer}", layer)
    yield "norm.weight", "norm", (D,)
    yield "head.weight", "bf16", (c.vocab, D)
    yield from head("")
    for k in range(c.mtp):
        p = f"mtp.{k}"
        yield from block(p, c.layers + k)
        yield p + ".e_proj.weight", "fp8", (D, D)
        yield p + ".h_proj.weight", "fp8", (D, D)
        for n in ("enorm", "hnorm", "norm"):
            yield f"{p}.{n}.weight", "norm", (D,)
        yield from head(p + ".")


def expert_stack(name):
    """(name of the stacked parameter, expert index) of an expert's tensor, or (name, None)."""
    part, found, rest = name.partition(".experts.")
    if not found:
        return name, None
    index, _, matrix = rest.partition(".")
    return f"{part}.experts.{matrix}", int(index)


def scale_name(name):
    return name.removesuffix("weight") + "scale"


# ------------------------------------------------------------------------------- safetensors files
def read_safetensors(path):
    """-> {name: (dtype string, tensor in the file's shape; raw bytes as uint8 for FP8, E8M0, I8)}"""
    raw = bytearray(pathlib.Path(path).read_bytes())
    (n,) = struct.unpack("<Q", raw[:8])
    out = {}
    for name, t in json.loads(raw[8 : 8 + n]).items():
        if name == "__metadata__":
            continue
        begin, end = t["data_offsets"]
        dtype = _DTYPES[t["dtype"]]
        data = torch.frombuffer(raw, dtype=torch.uint8, count=end - begin, offset=8 + n + begin)
        out[name] = (t["dtype"], data.clone().view(dtype).reshape(t["shape"]))
    return out


def write_safetensors(path, tensors):
    """tensors: [(name, dtype string, tensor)], written in this order."""
    header, blobs, offset = {}, [], 0
    for name, dtype, t in tensors:
        blob = t.detach().cpu().contiguous().flatten().view(torch.uint8).numpy().tobytes()
        header[name] = {
            "dtype": dtype,
            "shape": list(t.shape),
            "data_offsets": [offset, offset + len(blob)],
        }
        blobs.append(blob)
        offset += len(blob)
    head = json.dumps(header, separators=(",", ":")).encode()
    head += b" " * (-len(head) % 8)
    with open(path, "wb") as f:
        f.write(struct.pack("<Q", len(head)) + head)
        for blob in blobs:
            f.write(blob)


# -------------------------------------------------------------------------------------- the model
def stored_tensors(model):
    """Yields (name, dtype string, tensor) of all that a checkpoint holds."""
    for name, kind, _ in tensor_table(model.c):
        stack, expert = expert_stack(name)
        w = model.weight(stack).detach()
        w = w if expert is None else w[expert]
        if kind == "fp8":
            q, s = numerics.fp8_weight(w)
            yield name, "F8_E4M3", q.to(torch.float8_e4m3fn).view(torch.uint8)
            yield scale_name(name), "F8_E8M0", numerics.e8m0(s)
        elif kind == "fp4":
            q, s = numerics.fp4_weight(w)
            yield name, "I8", numerics.e2m1_nibbles(q)
            yield scale_name(name), "F8_E8M0", numerics.e8m0(s)
        elif kind == "tid2eid":
            yield name, "I64", w.long()
        elif kind == "f32":
            yield name, "F32", w.float()
        else:
            yield name, "BF16", w.bfloat16()


def export(model, folder, companions=()):
    """Writes shards, index and config, and copies `companions` (tokenizer files) beside them.
    -> bytes written"""
    folder = pathlib.Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    for old in folder.glob("model*.safetensors*"):
        old.unlink()
    shards, size = [[]], 0
    for entry in stored_tensors(model):
        n = entry[2].numel() * entry[2].element_size()
        if size + n > SHARD_BYTES - (1 << 20):  # 1 MiB is more than any header here
            shards.append([])
            size = 0
        shards[-1].append(entry)
        size += n
    index, total = {}, 0
    for i, shard in enumerate(shards, 1):
        file = f"model-{i:05}-of-{len(shards):05}.safetensors"
        write_safetensors(folder / file, shard)
        for name, _, t in shard:
            index[name] = file
            total += t.numel() * t.element_size()
    text = json.dumps({"metadata": {"total_size": total}, "weight_map": index}, indent=0)
    (folder / "model.safetensors.index.json").write_text(text + "\n")
    (folder / "config.json").write_text(json.dumps(model.c.raw, indent=1) + "\n")
    for path in companions:
        shutil.copy(path, folder / pathlib.Path(path).name)
    return sum(f.stat().st_size for f in folder.iterdir())


def load(model, folder):
    """Sets the model's master weights to the values of a checkpoint. Quantising them again gives
    the stored bytes' values: scales are chosen from the largest value, and a smaller power of two
    holds every value that a larger one holds."""
    files = {}
    for path in sorted(pathlib.Path(folder).glob("*.safetensors")):
        files.update(read_safetensors(path))
    with torch.no_grad():
        for name, kind, shape in tensor_table(model.c):
            t = files[name][1]
            if kind == "fp8":
                s = numerics.e8m0_values(files[scale_name(name)][1])
                t = numerics.scale_blocks(t.view(torch.float8_e4m3fn).float(), s)
            elif kind == "fp4":
                s = numerics.e8m0_values(files[scale_name(name)][1])
                q = numerics.e2m1_values(t.view(torch.uint8)).unflatten(-1, (-1, 32))
                t = (q * s.unsqueeze(-1)).flatten(-2)
            assert tuple(t.shape) == tuple(shape), (name, t.shape, shape)
            stack, expert = expert_stack(name)
            target = model.weight(stack)
            (target if expert is None else target[expert]).copy_(t)
