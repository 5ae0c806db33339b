"""What goes from GPU to GPU, for `bench/devices.py`: copies of the driver, transposes, and reductions."""

from __future__ import annotations

import statistics
import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from itertools import combinations, product
from typing import Any

import numpy as np

import gen
from bench.device_rows import Place, Row, Way, current, measured, ran, rounded, shape_text, speedups
from bench.device_steps import fields_of
from gen.gpu.device import Rows
from gen.runtime.sharded import ShardedArray
from gen.runtime.sharded_transpose import Pieces

LINK = {"NVIDIA H100 80GB HBM3": 450.0, "NVIDIA H200": 450.0}  # GB/s a direction, by NVIDIA's data sheets


def links(place: Place) -> Iterator[Row]:
    """What the driver copies from GPU to GPU, one way and both ways at once."""
    for one, other in combinations(place.devices, 2):
        can = one.reach(other)
        yield Row("links", f"GPU {one.index} and {other.index}", "peer access", 2, note="yes" if can else "NO")
    if not place.timed or len(place.devices) < 2:
        return
    for command in ("nvidia-smi topo -m", "nvidia-smi nvlink -s -i 0", f"{sys.executable} -m gen doctor"):
        done = ran(command.split(), 30)
        yield Row(
            "links",
            command.removeprefix(f"{sys.executable} -m "),
            "",
            len(place.devices),
            lines=tuple((done.stdout + done.stderr).splitlines()),
        )
    one, other = place.devices[:2]
    most = 1 << 30
    memory = []
    for device in (one, other):
        with current(device):
            memory.append((device.allocate(most), device.allocate(most), device.stream()))
    for size, copies in ((1 << 16, 50), (1 << 20, 50), (1 << 24, 20), (most, 4)):
        for how, pairs in (("0 to 1", ((0, 1),)), ("1 to 0", ((1, 0),)), ("both ways", ((0, 1), (1, 0)))):

            def run(pairs: Sequence[tuple[int, int]] = pairs, size: int = size, copies: int = copies) -> None:
                for _ in range(copies):
                    for sender, receiver in pairs:
                        source, target = memory[sender][0].address, memory[receiver][1].address
                        device, stream = place.devices[sender], memory[sender][2].handle
                        with current(device):
                            device.copy_to(
                                place.devices[receiver], Rows.of(source, size), Rows.of(target, size), stream
                            )

            [(ms, queued)] = measured([Way(Row("links", "", "", 2), run)], place.devices[:2])
            rate = copies * size / statistics.median(ms) / 1e6
            yield Row("links", f"copies of {size} bytes", how, 2, None, rounded(ms), round(queued, 4), round(rate, 1),
                      "GB/s a direction", note=f"{copies} copies")  # fmt: skip
    for row in (1 << 16, 1 << 14, 1 << 12, 1 << 10):  # of a block of a matrix of twice as long rows
        rows = min(most // 2, 1 << 28) // row
        with current(one):
            source = Rows(memory[0][0].address, 1, rows, row, row, rows)
            target = Rows(memory[1][1].address, 1, rows, row, 2 * row, rows)
            copy = partial(one.copy_to, other, source, target, memory[0][2].handle)
            [(ms, queued)] = measured([Way(Row("links", "", "", 2), copy)], place.devices[:2])
        yield Row("links", f"rows of {row} bytes with gaps", "0 to 1", 2, None, rounded(ms), round(queued, 4),
                  round(source.bytes / statistics.median(ms) / 1e6, 1), "GB/s a direction")  # fmt: skip


QUEUED, STORES = "chosen, every call queued anew", "stores to the other's memory"


def pieces_of(place: Place) -> dict[str, Pieces]:
    """Ways in which blocks go to other devices, by name: what is chosen, and what else there is."""
    chosen, apart = Pieces(), replace(Pieces(), paired=0)
    found = dict.fromkeys(("chosen", QUEUED), chosen) | {STORES: replace(apart, fewest=1 << 50)}
    if place.machine is not None:
        pairs = replace(chosen, paired=1 << 9)
        return found | {"by copy engines": Pieces(1 << 9, 2, 2, 1, 1, 0), "pairs": pairs}
    for size in (1 << 20, 16 << 20):
        found[f"pairs, in parts of {size >> 20} MiB"] = replace(chosen, paired=size)
    for slots, size in ((3, 32 << 20), (3, 64 << 20)):
        name = f"copy engines, {slots} x {size >> 20} MiB a rank"
        found[name] = replace(apart, slots=slots, size=size, fewest=1)
    return found


def transposes(place: Place) -> Iterator[Row]:
    """Of a square matrix of f32, in the ways that there are."""
    for extent in (32768, 8192) if place.machine is None else (96,):
        whole = fields_of((extent, extent), ["matrix"], np.dtype(np.float32))[0]
        spec = gen.permutation((1, 0), "float32")
        one = gen.load(spec, device=place.devices[0])
        single = gen.load(spec, devices=place.devices[:1])
        case = f"transpose f32, {extent} x {extent}"
        array, out = single.scatter(whole), single.empty((extent, extent), dtype=whole.dtype)
        run_one = partial(one, array.shards[0], out=out.shards[0])
        ways = [Way(Row("transpose", case, "one GPU", 1), run_one, out.gather)]
        sent = [0]
        for count in place.counts:
            devices = place.devices[:count]
            part = extent * extent * 4 // count
            kernel = gen.load(spec, devices=devices)
            array, out = kernel.scatter(whole), kernel.empty((extent, extent), dtype=whole.dtype)
            for how, pieces in pieces_of(place).items():
                kernel = gen.load(spec, devices=devices)
                kernel.pieces, kernel.replays = pieces, how != QUEUED
                ways.append(Way(Row("transpose", case, how, count), partial(kernel, array, out=out), out.gather, 0))
                sent.append(part * (count - 1) // count)
            if count == 2 and place.timed:
                rest = max(extent // 128, 8)
                kernel = gen.load(spec, devices=devices)
                array = kernel.scatter(whole, [(extent - rest, rest), (extent,)])
                out = kernel.empty((extent, extent), [(rest, extent - rest), (extent,)], whole.dtype)
                how = "nearly all from 0 to 1"
                ways.append(Way(Row("transpose", case, how, count), partial(kernel, array, out=out), out.gather, 0))
                sent.append((extent - rest) ** 2 * 4)
                half = gen.load(spec, devices=place.devices[:1])
                array, out = (
                    half.scatter(whole[: extent // 2, : extent // 2]),
                    half.empty((extent // 2, extent // 2), dtype=whole.dtype),
                )
                run = partial(one, array.shards[0], out=out.shards[0])
                ways.append(Way(Row("transpose", case, "one GPU, its own block alone", 1), run, out.gather, 0))
                sent.append(0)
        if not place.timed:
            rows = np.random.default_rng(0).integers(0, extent, 200)
            for way in ways:
                way.run()
                assert way.result is not None
                yield replace(way.row, equal=np.array_equal(way.result()[rows], whole[:, rows].T))
            continue
        for row, bytes_sent in zip(list(speedups(ways, place.devices)), sent, strict=True):
            if not bytes_sent:
                yield row
                continue
            rate = bytes_sent / statistics.median(row.ms) / 1e6
            link = LINK.get(place.devices[0].name)
            note = f"{row.value} times one GPU" + (f", {rate / link:.3f} of {link:g} GB/s" if link else "")
            yield replace(row, value=round(rate, 1), unit="GB/s out of a GPU", note=note,
                          goal=None if link is None else 0.85 * link)  # fmt: skip


def reductions(place: Place) -> Iterator[Row]:
    """Of whole arrays of rows that are split, weak and strong."""
    rows = (1 << 15, 1 << 14) if place.machine is None else (128, 40)
    for op, dtype in (("sum", "float32"), ("argmax", "float32"), ("sum", "float64")):
        spec = gen.reduction(op, dtype)
        one, single = gen.load(spec, device=place.devices[0]), gen.load(spec, devices=place.devices[:1])
        whole = fields_of(rows, ["x"], single.dtype)[0]
        case = f"{op} {dtype}, {shape_text(rows)}"
        array = single.scatter(whole)
        kept = [single(array)]  # results, whose memory is not given back between calls, which would wait
        ways = [Way(Row("reduction", case, "one GPU", 1), partial(one, array.shards[0], out=kept[0]))]

        def run(kernel: Any, array: ShardedArray, kept: list[Any] = kept) -> None:
            kept.append(kernel(array))

        ways.append(Way(Row("reduction", case, "one GPU, in units", 1), partial(run, single, array), None, 0))
        for count, weak in product(place.counts, (True, False)):
            devices = place.devices[:count]
            large = np.resize(whole, (rows[0] * count, rows[1])) if weak else whole
            kernel = gen.load(spec, devices=devices)
            array = kernel.scatter(large)
            about = f"{case} {'a GPU' if weak else 'in all'}"
            row = Row("reduction", about, f"{count} ranks", count)
            if not place.timed:
                wanted = single(single.scatter(large)).numpy()
                yield replace(row, equal=kernel(array).numpy().tobytes() == wanted.tobytes())
            ways.append(Way(row, partial(run, kernel, array), None, 0, count if weak else 1))
        if place.timed:
            yield from speedups(ways, place.devices)
