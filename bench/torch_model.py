"""A small U-Net with its permutations and norms by gen, and by torch: `python bench/torch_model.py [--json FILE]`.

Both have the same weights and run in turns: eagerly, and under `torch.compile(fullgraph=True)`. Each block of the net
permutes its cells to channels last, subtracts the mean of the channels, divides by their standard deviation, and
permutes back, as models that normalize over channels do. A row holds the median time of a forward pass, and of one with
gradients. Results and gradients are compared with those of torch, run eagerly, before anything is timed.

It needs torch, and a GPU; without one `--check` compares on the CPU run, with GEN_DEVICE=cpu, and times nothing.
"""

from __future__ import annotations

import argparse
import importlib
import statistics
import sys
from collections.abc import Callable, Sequence
from copy import deepcopy
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.program import ended, need_gpu, write_results

CHANNELS, DEPTH = 32, 3
BATCH, SIDE = 8, 256
SMALL = (1, 8)  # batch and side of `--check` without a GPU
ROUNDS, CALLS = 15, 10  # turns, and passes in a row of each
EPSILON = 1e-5
TOLERANCE = 2e-4  # of results and gradients, relative to the largest


@dataclass(frozen=True)
class Operators:
    """What a block calls: the dense permutation, the mean and the variance of the last axis, which is kept."""

    permuted: Callable[[Any, Sequence[int]], Any]
    mean: Callable[[Any], Any]
    var: Callable[[Any], Any]


@dataclass(frozen=True)
class Row:
    """Microseconds of a forward pass, and of one that gradients are computed behind."""

    model: str
    forward_us: float
    with_gradients_us: float


def of_torch() -> Operators:
    """Torch's own."""
    return Operators(
        lambda x, axes: x.permute(*axes).contiguous(), lambda x: x.mean(-1, keepdim=True),
        lambda x: x.var(-1, correction=0, keepdim=True),
    )  # fmt: skip


def of_gen() -> Operators:
    """Those of `gen.torch`."""
    ours = importlib.import_module("gen.torch")
    return Operators(
        ours.permute_dims, lambda x: ours.mean(x, axis=-1, keepdims=True),
        lambda x: ours.var(x, axis=-1, keepdims=True),
    )  # fmt: skip


def net(torch: Any, operators: Operators, seed: int = 0) -> Any:
    """The U-Net: three blocks down, two up, whose norms and permutations are these."""
    nn, functional = torch.nn, torch.nn.functional

    class Block(nn.Module):  # type: ignore[misc,name-defined]
        """A convolution, the norm over channels, a nonlinearity."""

        def __init__(self, inputs: int, outputs: int) -> None:
            super().__init__()
            self.convolution = nn.Conv2d(inputs, outputs, 3, padding=1)
            self.scale = nn.Parameter(torch.ones(outputs))
            self.shift = nn.Parameter(torch.zeros(outputs))

        def forward(self, x: Any) -> Any:
            cells = operators.permuted(self.convolution(x), (0, 2, 3, 1))
            normed = (cells - operators.mean(cells)) / (operators.var(cells) + EPSILON).sqrt()
            return functional.silu(operators.permuted(normed * self.scale + self.shift, (0, 3, 1, 2)))

    class Net(nn.Module):  # type: ignore[misc,name-defined]
        """Blocks at half the side each, then up again, with what was there on the way down beside."""

        def __init__(self) -> None:
            super().__init__()
            widths = [CHANNELS << level for level in range(DEPTH)]
            self.down = nn.ModuleList(Block(before, after) for before, after in zip([3, *widths], widths, strict=False))
            self.up = nn.ModuleList(
                Block(high + low, low) for high, low in zip(widths[:0:-1], widths[-2::-1], strict=True)
            )
            self.last = nn.Conv2d(widths[0], 3, 1)

        def forward(self, x: Any) -> Any:
            beside = []
            for level, block in enumerate(self.down):
                x = block(functional.max_pool2d(x, 2) if level else x)
                beside.append(x)
            beside.pop()
            for block in self.up:
                x = functional.interpolate(x, scale_factor=2.0, mode="nearest")
                x = block(torch.cat((x, beside.pop()), 1))
            return self.last(x)

    torch.manual_seed(seed)
    return Net()


def models(torch: Any, place: str, backend: str) -> dict[str, Any]:
    """Every way to run the net, by name: torch's own, run eagerly, first; all have the weights of that one."""
    first = net(torch, of_torch()).to(place)
    ours = net(torch, of_gen()).to(place)
    ours.load_state_dict(deepcopy(first.state_dict()))
    found = {"torch, eager": first, "gen, eager": ours}
    for name, one in (("torch", first), ("gen", ours)):
        found[f"{name}, torch.compile"] = torch.compile(one, fullgraph=True, backend=backend)
    return found


def gradients(model: Any, x: Any) -> tuple[Any, list[Any]]:
    """What a net makes of images, and the gradients of its mean square by all weights."""
    model.zero_grad(set_to_none=True)
    y = model(x)
    y.square().mean().backward()
    return y.detach(), [one.grad for one in model.parameters()]


def differences(found: dict[str, Any], x: Any) -> dict[str, float]:
    """How far each is from the first, as a part of the largest: of the result and of all gradients."""
    first, *others = found
    wanted, wanted_gradients = gradients(found[first], x)
    far: dict[str, float] = {}
    for name in others:
        result, own = gradients(found[name], x)
        pairs = [(result, wanted), *zip(own, wanted_gradients, strict=True)]
        far[name] = max(float((a - b).abs().max() / b.abs().max().clamp_min(1e-12)) for a, b in pairs)
    return far


def microseconds(torch: Any, call: Callable[[], object]) -> float:
    """The mean time of some passes in a row, by events of the GPU."""
    begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    begin.record()
    for _ in range(CALLS):
        call()
    end.record()
    torch.cuda.synchronize()
    return 1000 * float(begin.elapsed_time(end)) / CALLS


def timed(torch: Any, found: dict[str, Any], x: Any, rounds: int) -> list[Row]:
    """A row a model: medians of its turns."""
    times: dict[str, tuple[list[float], list[float]]] = {name: ([], []) for name in found}

    def forward(model: Any) -> None:
        with torch.no_grad():
            model(x)

    for turn in range(rounds + 1):
        for name, model in found.items():
            took = (
                microseconds(torch, lambda model=model: forward(model)),  # type: ignore[misc]
                microseconds(torch, lambda model=model: gradients(model, x)),  # type: ignore[misc]
            )
            if turn:  # the first one warms up
                for kept, one in zip(times[name], took, strict=True):
                    kept.append(one)
    return [Row(name, *(round(statistics.median(one), 1) for one in both)) for name, both in times.items()]


def main() -> int:
    """Prints a line a model; status 1 if one differs from torch's."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", type=Path, help="also write the rows to this file")
    parser.add_argument("--rounds", type=int, default=ROUNDS, help="turns of every model")
    parser.add_argument("--check", action="store_true", help="compare on the CPU run, and time nothing")
    options = parser.parse_args()
    gpu = None if options.check else need_gpu("python bench/torch_model.py")
    torch: Any = importlib.import_module("torch")
    place, backend = ("cpu", "aot_eager") if gpu is None else ("cuda", "inductor")
    batch, side = SMALL if gpu is None else (BATCH, SIDE)
    torch.backends.cudnn.allow_tf32 = torch.backends.cuda.matmul.allow_tf32 = False
    found = models(torch, place, backend)
    x = torch.randn(batch, 3, side, side, generator=torch.Generator().manual_seed(1)).to(place)
    far = differences(found, x)
    for name, one in far.items():
        print(f"{name}: differs from torch, run eagerly, by {one:.1e} of the largest")
    wrong = max(far.values()) > TOLERANCE
    rows = [] if gpu is None or wrong else timed(torch, found, x, options.rounds)
    for row in rows:
        print(f"{row.forward_us:10.1f} us forward, {row.with_gradients_us:10.1f} us with gradients  {row.model}")
    if gpu is not None:
        more = {"torch version": torch.__version__, "images": [batch, 3, side, side]}
        write_results(options.json, "python bench/torch_model.py", gpu, more, differences=far, rows=rows)
    return int(wrong)


if __name__ == "__main__":
    sys.exit(ended(main))
