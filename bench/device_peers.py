"""What others do with several GPUs, for `bench/devices.py`: five points by CUDA, JAX and torch, and torch's transpose.

All begin with the same cells, do the same steps one by one with an exchange after each, and write four rows in the
middle, which are compared with NumPy's. Each runs in processes of its own: `python bench/device_peers.py jax 2 FILE
4096x4096x512`, say, prints a line of JSON for each shape.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

import numpy as np

from bench.device_rows import COUNTS, ROOT, Place, Row, free_address, ran

if TYPE_CHECKING:
    from gen.families.base import Array

SHAPES = ((16384, 16384, 64), (4096, 4096, 128))  # rows of a GPU, columns, steps
MATRICES = (32768, 8192)
TURNS = 5
SHOWN = 4  # rows in the middle
RELATIVE_TOLERANCE = 1e-5
PAD = 4  # columns of zeros beside those of torch, so that rows are aligned


def rows(place: Place) -> Iterator[Row]:
    """All that run here."""
    if not place.timed:
        return
    counts = [count for count in COUNTS if count <= len(place.devices)]
    program = place.folder / "jacobi"
    alone: dict[tuple[str, str], float] = {}
    for name in ("torch, symmetric memory", "CUDA, one process", "torch, permute, all-to-all, permute",
                 "JAX, shard_map and ppermute"):  # fmt: skip
        if name.startswith("CUDA"):
            source = str(ROOT / "bench" / "peers" / "jacobi.cu")
            made = ran(["nvcc", "-O3", "-arch=native", "-o", str(program), source], 60)
            if made.returncode:
                yield Row("peers", name, "does not compile", 0, lines=_last(made))
                return
        for count in counts:
            file = place.folder / f"{name.split(',')[0]}-{count}"
            if name.startswith("CUDA"):
                found = _by_cuda(program, count, file)
            else:
                kind = {"JAX": "jax", "tor": "torch"}[name[:3]]
                if "permute," in name:
                    if count == 1:
                        continue
                    kind = "transpose"
                words = [f"{n}" for n in MATRICES] if kind == "transpose" else ["x".join(map(str, s)) for s in SHAPES]
                command = [sys.executable, "-u", str(Path(__file__).resolve()), kind, str(count), str(file), *words]
                done = ran(command, 70)
                found = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
                if done.returncode or len(found) < len(words):
                    yield Row("peers", name, f"failed, status {done.returncode}", count, lines=_last(done))
            for one in found:
                ms = tuple(round(took, 4) for took in one["ms"])
                if "matrix" in one:
                    n = one["matrix"]
                    rate = n * n * 4 // count * (count - 1) // count / median(ms) / 1e6
                    yield Row("transpose", f"transpose f32, {n} x {n}", name, count, one["equal"], ms,
                              value=round(rate, 1), unit="GB/s out of a GPU")  # fmt: skip
                    continue
                high, wide, steps = one["shape"]
                case = f"5 points f32, {high} x {wide} a GPU"
                right = np.fromfile(one["file"], np.float32).reshape(SHOWN, wide)
                equal = bool(np.allclose(right, expected(high * count, wide, steps), rtol=RELATIVE_TOLERANCE, atol=0))
                if count == 1:
                    alone[name, case] = median(ms)
                value = count * alone[name, case] / median(ms) if (name, case) in alone else None
                yield Row("peers", case, name, count, equal, ms, value=value and round(value, 4), unit="times one GPU",
                          note=f"{1000 * median(ms) / steps:.2f} us a step")  # fmt: skip


def _last(done: Any) -> tuple[str, ...]:
    return tuple((done.stdout + done.stderr).splitlines()[-40:])


def _by_cuda(program: Path, count: int, file: Path) -> list[dict[str, Any]]:
    found = []
    for high, wide, steps in SHAPES:
        words = [count, high, wide, steps, TURNS, f"{file}-{high}"]
        done = ran([str(program), *map(str, words)], 40)
        if done.returncode:
            print("\n".join(_last(done)))
            continue
        found.append({"shape": [high, wide, steps], "ms": list(map(float, done.stdout.split())), "file": words[-1]})
    return found


def cells(first: int, high: int, wide: int) -> Array:
    """Those of some rows at the start."""
    row, col = np.arange(first, first + high, dtype=np.int64)[:, None], np.arange(wide, dtype=np.int64)
    return ((row * 7919 + col * 104729) % 1021).astype(np.float32) / np.float32(1021)


@cache
def expected(high: int, wide: int, steps: int) -> Array:
    """The rows in the middle by NumPy, in double: from the rows alone that they depend on."""
    first = max(high // 2 - SHOWN // 2 - steps, 0)
    last = min(high // 2 + SHOWN // 2 + steps, high)
    now = np.zeros((last - first + 2, wide + 2))
    now[1:-1, 1:-1] = cells(first, last - first, wide)
    for _ in range(steps):
        following = np.zeros_like(now)
        around = now[:-2, 1:-1] + now[2:, 1:-1] + now[1:-1, :-2] + now[1:-1, 2:]
        following[1:-1, 1:-1] = 0.125 * around + 0.5 * now[1:-1, 1:-1]
        now = following
    at = high // 2 - SHOWN // 2 - first + 1
    shown: Array = now[at : at + SHOWN, 1:-1]
    return shown


def _said(content: dict[str, Any]) -> None:
    print(json.dumps(content), flush=True)


def by_jax(count: int, file: Path, shapes: list[tuple[int, ...]]) -> None:
    """One process, rows split by shard_map, halos by ppermute."""
    import jax
    import jax.numpy as jnp
    from jax.sharding import Mesh, NamedSharding, PartitionSpec

    mesh = Mesh(np.array(jax.devices()[:count]), ("rows",))
    split = PartitionSpec("rows", None)
    down, up = [(n, n + 1) for n in range(count - 1)], [(n + 1, n) for n in range(count - 1)]

    def step(_: Any, now: Any) -> Any:
        above = jax.lax.ppermute(now[-1:], "rows", down) if count > 1 else jnp.zeros_like(now[:1])
        below = jax.lax.ppermute(now[:1], "rows", up) if count > 1 else jnp.zeros_like(now[:1])
        tall = jnp.concatenate([above, now, below])
        wide = jnp.pad(now, ((0, 0), (1, 1)))
        return 0.125 * (tall[:-2] + wide[:, :-2] + wide[:, 2:] + tall[2:]) + 0.5 * now

    for high, wide, steps in shapes:

        def all_steps(now: Any, steps: int = steps) -> Any:
            return jax.lax.fori_loop(0, steps, step, now)

        run = jax.jit(jax.shard_map(all_steps, mesh=mesh, in_specs=(split,), out_specs=split))
        begin = jax.device_put(cells(0, high * count, wide), NamedSharding(mesh, split))
        result = jax.block_until_ready(run(begin))
        ms = []
        for _ in range(TURNS):
            before = time.perf_counter()
            jax.block_until_ready(run(begin))
            ms.append(1000 * (time.perf_counter() - before))
        middle = high * count // 2 - SHOWN // 2
        where = f"{file}-{high}"
        np.asarray(result[middle : middle + SHOWN]).tofile(where)
        _said({"shape": [high, wide, steps], "ms": ms, "file": where})


def by_torch(count: int, file: Path, work: Callable[[Any, int, int, Path, Any], None], words: Any) -> None:
    """One process for each GPU, with NCCL; this one is started again for each rank."""
    rank = os.environ.get("RANK")
    if rank is None:
        port = free_address().partition(":")[2]
        shared = {**os.environ, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, "WORLD_SIZE": str(count)}
        begun = [
            subprocess.Popen([sys.executable, "-u", *sys.argv], env={**shared, "RANK": str(number)})
            for number in range(count)
        ]
        sys.exit(max(abs(process.wait()) for process in begun))
    import torch
    import torch.distributed as dist

    number = int(rank)
    torch.cuda.set_device(number)
    dist.init_process_group("nccl", rank=number, world_size=count, device_id=torch.device("cuda", number))
    work(torch, number, count, file, words)
    dist.destroy_process_group()


def _times(torch: Any, run: Callable[[], object], turns: int = TURNS) -> list[float]:
    """Milliseconds of the slowest process, turn for turn."""
    import torch.distributed as dist

    ms = []
    for _ in range(1 + turns):
        torch.cuda.synchronize()
        dist.barrier()
        torch.cuda.synchronize()
        begin = time.perf_counter()
        run()
        torch.cuda.synchronize()
        took = torch.tensor([1000 * (time.perf_counter() - begin)], device="cuda")
        dist.all_reduce(took, dist.ReduceOp.MAX)
        ms.append(float(took))
    return ms[1:]


def torch_jacobi(torch: Any, rank: int, count: int, file: Path, shapes: list[tuple[int, ...]]) -> None:
    """Rows split, kernels of torch.compile, halos stored into the neighbours' symmetric memory."""
    import torch.distributed as dist
    import torch.distributed._symmetric_memory as symmetric

    def in_torch(after: Any, here: Any, north: Any, west: Any, east: Any, south: Any) -> None:
        after.copy_(0.125 * (north + west + east + south) + 0.5 * here)

    update = torch.compile(in_torch, dynamic=False)
    rims = torch.cuda.Stream(priority=-1)
    for high, wide, steps in shapes:
        shape = (high + 2, wide + 2 * PAD)
        both = [symmetric.empty(*shape, dtype=torch.float32, device=torch.device("cuda", rank)) for _ in range(2)]
        handles = [symmetric.rendezvous(one, dist.group.WORLD) for one in both]
        peers = {
            other: [handle.get_buffer(other, shape, torch.float32) for handle in handles]
            for other in (rank - 1, rank + 1) if 0 <= other < count
        }  # fmt: skip
        begin = torch.from_numpy(cells(rank * high, high, wide)).cuda()

        def put(both: Any = both, begin: Any = begin) -> None:
            for one in both:
                one.zero_()
                one[1:-1, PAD:-PAD] = begin
            for now in range(2):
                send(now)
            torch.cuda.synchronize()
            dist.barrier()

        def send(now: int, both: Any = both, peers: Any = peers) -> None:
            for other, buffers in peers.items():
                if other < rank:
                    buffers[now][-1].copy_(both[now][1])
                else:
                    buffers[now][0].copy_(both[now][-2])

        def part(now: int, first: int, end: int, both: Any = both, wide: int = wide) -> None:
            one, cols = both[now], slice(PAD, PAD + wide)
            update(both[1 - now][first:end, cols], one[first:end, cols], one[first - 1 : end - 1, cols],
                   one[first:end, PAD - 1 : PAD - 1 + wide], one[first:end, PAD + 1 : PAD + 1 + wide],
                   one[first + 1 : end + 1, cols])  # fmt: skip

        def run(steps: int = steps, high: int = high, handles: Any = handles) -> None:
            main = torch.cuda.current_stream()
            for number in range(steps):
                now = number % 2
                rims.wait_stream(main)
                with torch.cuda.stream(rims):
                    part(now, 1, 2)
                    part(now, high, high + 1)
                    send(1 - now)
                    handles[1 - now].barrier(channel=now)
                part(now, 2, high)
                main.wait_stream(rims)

        put()
        run()
        torch.cuda.synchronize()
        dist.barrier()
        put()
        run()
        middle = count * high // 2 - SHOWN // 2 - rank * high
        shown = torch.zeros(SHOWN, wide, device="cuda")
        for n in range(SHOWN):
            if 0 <= middle + n < high:
                shown[n] = both[steps % 2][middle + n + 1, PAD:-PAD]
        dist.all_reduce(shown)
        ms = _times(torch, run)
        if rank == 0:
            where = f"{file}-{high}"
            shown.cpu().numpy().tofile(where)
            _said({"shape": [high, wide, steps], "ms": ms, "file": where})


def torch_transpose(torch: Any, rank: int, count: int, file: Path, sizes: list[tuple[int, ...]]) -> None:  # noqa: ARG001
    """Permute, all-to-all, permute, as it is written with torch."""
    import torch.distributed as dist

    for (n,) in sizes:
        part = n // count
        line = torch.arange(n, device="cuda", dtype=torch.float32)
        matrix = (line[rank * part : (rank + 1) * part, None] * 3 + line * 7) % 8191
        found: list[Any] = []

        def run(matrix: Any = matrix, part: int = part, n: int = n, found: list[Any] = found) -> None:
            packed = matrix.view(part, count, part).permute(1, 2, 0).contiguous()
            came = torch.empty_like(packed)
            dist.all_to_all_single(came, packed)
            found[:] = [came.permute(1, 0, 2).contiguous().view(part, n)]

        ms = _times(torch, run)
        wanted = (line * 3 + line[rank * part : (rank + 1) * part, None] * 7) % 8191
        equal = torch.tensor([int(torch.equal(found[0], wanted))], device="cuda")
        dist.all_reduce(equal, dist.ReduceOp.MIN)
        if rank == 0:
            _said({"matrix": n, "ms": ms, "equal": bool(int(equal))})


def main() -> int:
    """Runs one of them."""
    kind, count, file, *words = sys.argv[1:]
    shapes = [tuple(map(int, word.split("x"))) for word in words]
    if kind == "jax":
        by_jax(int(count), Path(file), shapes)
    else:
        by_torch(int(count), Path(file), torch_jacobi if kind == "torch" else torch_transpose, shapes)
    return 0


if __name__ == "__main__":
    sys.exit(main())
