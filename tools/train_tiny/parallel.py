"""Training by several processes of one machine, one for each GPU, with the same weights.

`supervise` starts them and, where they fail, goes on with one. `Group` is what a process sees of the
others: gradients are averaged, and what follows a clock or chance is decided by rank 0 alone. This
module reads PyTorch only inside Group, because that takes longer than all else here.
"""

import ctypes
import datetime
import glob
import json
import os
import pathlib
import re
import signal
import socket
import subprocess
import sys
import tempfile
import time

PLACE = "TRAIN_TINY_PLACE"  # environment variable that tells a process which rank it is
JOIN_SECONDS = 30  # for all ranks to have met, after PyTorch is read
READ_SECONDS = 120  # for that, and for the GPU to answer
SLOW_AVERAGE = 0.012  # seconds: gradients that take longer to average travel as bf16


def end_with_parent():
    """Asks Linux to end this process when the one that started it does, however that ends."""
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG


def visible_gpus():
    chosen = os.environ.get("CUDA_VISIBLE_DEVICES")
    if chosen is not None:
        return len([d for d in chosen.split(",") if d.strip() not in ("", "-1")])
    try:
        listed = subprocess.run(["nvidia-smi", "--list-gpus"], capture_output=True, text=True)
        if listed.returncode == 0:
            return listed.stdout.count("UUID")
    except OSError:
        pass
    return len([p for p in glob.glob("/dev/nvidia*") if re.fullmatch(r"/dev/nvidia\d+", p)])


def place():
    """What the process that started this one says about it, or {}."""
    return json.loads(os.environ.get(PLACE, "{}"))


def _free_ports(n):
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(n)]
    ports = [s.getsockname()[1] for s in sockets]
    for s in sockets:
        s.close()
    return ports


def _environment(rank, world, start, folder, ports):
    cores = os.cpu_count() or 1
    told = {"rank": rank, "world": world, "start": start, "folder": folder, "ports": ports}
    out = os.environ | {
        PLACE: json.dumps(told),
        # One host without a network; NVLink multicast stays off.
        "NCCL_NVLS_ENABLE": "0",
        "TORCH_SYMM_MEM_DISABLE_MULTICAST": "1",
        "NVSHMEM_DISABLE_NVLS": "1",
        "NCCL_IB_DISABLE": "1",
        "NCCL_SOCKET_IFNAME": "lo",
        "GLOO_SOCKET_IFNAME": "lo",
        "OMP_NUM_THREADS": "4",
    }
    if world > 1:  # each its own cache: they compile the same at the same time
        out |= {
            "TORCHINDUCTOR_COMPILE_THREADS": str(max(1, min(16, cores // world))),
            "TORCHINDUCTOR_CACHE_DIR": f"{folder}/inductor.{rank}",
            "TRITON_CACHE_DIR": f"{folder}/triton.{rank}",
        }
    return out


def _watch(ranks, folder):
    """-> "" when rank 0 has ended well, else what went wrong"""
    began, all_read, all_joined = time.monotonic(), None, False
    while True:
        for rank, process in enumerate(ranks):
            status = process.poll()
            # Once rank 0 has all it needs, the others are free to go, however they do.
            if status and (rank == 0 or not (folder / "trained").exists()):
                return f"rank {rank} ended with status {status}"
        if ranks[0].poll() == 0:
            return ""
        if not all_joined and len(ranks) > 1:
            now = time.monotonic()
            if all_read is None and len(list(folder.glob("read.*"))) == len(ranks):
                all_read = now
            all_joined = len(list(folder.glob("joined.*"))) == len(ranks)
            if all_read is None and now - began > READ_SECONDS:
                return f"not all ranks had read PyTorch after {READ_SECONDS} s"
            if all_read is not None and not all_joined and now - all_read > JOIN_SECONDS:
                return f"not all ranks had met after {JOIN_SECONDS} s"
        time.sleep(0.1)


def _attempt(command, world, start):
    with tempfile.TemporaryDirectory(prefix="train-tiny-", ignore_cleanup_errors=True) as folder:
        ports, ranks = _free_ports(2), []
        try:
            for rank in range(world):
                ranks.append(
                    subprocess.Popen(
                        command,
                        env=_environment(rank, world, start, folder, ports),
                        start_new_session=True,  # so that it ends with all that it started
                        preexec_fn=end_with_parent,
                    )
                )
            return _watch(ranks, pathlib.Path(folder))
        finally:
            for process in ranks:
                try:
                    os.killpg(process.pid, signal.SIGKILL)
                except ProcessLookupError:
                    pass
                process.wait()


def supervise(arguments, world, start, state):
    """Runs train.py with these arguments in `world` processes, and in one where that fails: from the
    last state, in the time that is left. -> exit status"""
    with tempfile.TemporaryDirectory(prefix="train-tiny-state-") as folder:
        command = [sys.executable, sys.argv[0], *arguments]
        if not state:
            command += ["--state", f"{folder}/state.pt"]
        wrong = _attempt(command, world, start)
        if wrong:
            print(f"train.py: {world} processes failed: {wrong}; going on with one", flush=True)
            wrong = _attempt(command + ["--resume", "--gpus", "1"], 1, start)
        if wrong:
            print(f"train.py: {wrong}", flush=True)
    return 1 if wrong else 0


class Group:
    """The ranks as one of them sees them; a group of one does nothing."""

    def __init__(self, device):
        told = place()
        self.rank, self.world, self.said = told.get("rank", 0), told.get("world", 1), 0
        self.kind = None  # of the numbers that gradients travel as
        if self.world == 1:
            return
        import torch
        import torch.distributed as dist

        self.torch, self.dist = torch, dist
        self.folder = folder = pathlib.Path(told["folder"])
        if device == "cuda":
            torch.cuda.set_device(self.rank)
            torch.zeros(1, device=device).item()
        (folder / f"read.{self.rank}").touch()

        def store(port, seconds):
            wait = datetime.timedelta(seconds=seconds)
            return dist.TCPStore("127.0.0.1", port, self.world, self.rank == 0, timeout=wait)

        dist.init_process_group(
            "nccl" if device == "cuda" else "gloo",
            store=store(told["ports"][0], READ_SECONDS),
            rank=self.rank,
            world_size=self.world,
            timeout=datetime.timedelta(seconds=150),
        )
        # Words between ranks have a store of their own: waiting for one must not keep a monitor of
        # NCCL from the other.
        self.store = store(told["ports"][1], 600)
        met = torch.ones(1 << 20, device=device)
        dist.all_reduce(met)
        if not (met == self.world).all():
            raise RuntimeError(f"a sum over {self.world} ranks came out wrong on rank {self.rank}")
        (folder / f"joined.{self.rank}").touch()

    def agree(self, word=None):
        """What rank 0 says, on every rank. A JSON value."""
        if self.world == 1:
            return word
        key = f"word {self.said}"
        self.said += 1
        if self.rank == 0:
            self.store.set(key, json.dumps(word))
            return word
        return json.loads(self.store.get(key))

    def all(self, word):
        """What every rank says, on every rank."""
        if self.world == 1:
            return [word]
        key = f"words {self.said}"
        self.said += 1
        self.store.set(f"{key} {self.rank}", json.dumps(word))
        return [json.loads(self.store.get(f"{key} {rank}")) for rank in range(self.world)]

    def choose_kind(self, n, device):
        """Measures how long n gradients travel as fp32, and chooses bf16 where that is slow.
        -> milliseconds"""
        if self.world == 1:
            return 0.0
        flat = self.torch.zeros(n, device=device)
        for i in range(6):
            if i == 1:  # the first makes the connections
                flat.sum().item()
                start = time.monotonic()
            self.dist.all_reduce(flat)
        flat.sum().item()
        seconds = self.agree((time.monotonic() - start) / 5)
        self.kind = self.torch.bfloat16 if seconds > SLOW_AVERAGE else self.torch.float32
        return round(1000 * seconds, 2)

    def average(self, params, sums):
        """Averages gradients and adds up `sums` (fp32 tensors) over the ranks, in place."""
        if self.world == 1:
            return
        grads = [p.grad for p in params if p.grad is not None]
        for tensors, kind, divisor in ((grads, self.kind, self.world), (sums, None, 1)):
            if not tensors:
                continue
            flat = self.torch.cat([t.flatten() for t in tensors]).to(kind or tensors[0].dtype)
            self.dist.all_reduce(flat)
            flat = flat.float() / divisor
            parts = flat.split([t.numel() for t in tensors])
            self.torch._foreach_copy_(tensors, [p.view_as(t) for p, t in zip(parts, tensors)])

    def trained(self):
        """Rank 0 needs the others no more."""
        if self.world > 1:
            (self.folder / "trained").touch()

    def unite(self, tensors):
        """-> whether the ranks had the same bits in these tensors; they have rank 0's from now on"""
        if self.world == 1:
            return True
        flat = self.torch.cat([t.detach().float().flatten() for t in tensors])
        bits = flat.view(self.torch.int32)
        odd, even = (bits[i::2].sum(dtype=self.torch.int64) for i in (0, 1))
        digests = self.all([int(odd), int(even)])
        same = all(d == digests[0] for d in digests)
        if not same:
            with self.torch.no_grad():
                for t in tensors:
                    self.dist.broadcast(t, 0)
        return same
