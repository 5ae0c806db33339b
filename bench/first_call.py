"""What a first call costs: `python -m bench.first_call [--json FILE] [--profile FOLDER]`, on a GPU with torch.

Each first call has a process of its own, which is forked after torch was imported and has its context and its input
before the clock starts: from then on it imports gen, loads the kernel, calls it and waits for the result. `untuned` has
an empty home, `again` finds there what that process kept, `tuned` tunes for two seconds, `found` finds that winner.
Beside them stands torch.compile. The last column is the time of a later call from cold caches: what tuning gained.

`--stub` needs neither a GPU nor torch: it times the first calls of NumPy arrays on the CPU run, without tuning.
"""

from __future__ import annotations

import argparse
import cProfile
import json
import multiprocessing
import os
import pstats
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from datetime import date
from importlib import import_module
from multiprocessing.connection import Connection
from pathlib import Path
from statistics import median
from typing import Any

# Nothing of gen is imported here: the processes that are forked are to import it.

BUDGET = "2s"
LATER_CALLS = 30
FLUSHED_BYTES = 1 << 28  # written before each later call


@dataclass(frozen=True)
class Row:
    """One first call.

    Attributes:
        case: what was computed, on which input.
        what: how: `untuned`, `again`, `tuned`, `found` or `torch.compile`.
        import_s, load_s, call_s: its parts; of torch.compile the call alone.
        later_us: of a later call, from cold caches, by the GPU's clock; 0 where nobody looked.
        variant: of gen.
        tried: variants that were timed to find it.
    """

    case: str
    what: str
    import_s: float
    load_s: float
    call_s: float
    later_us: float
    variant: str = ""
    tried: int = 0

    @property
    def first_s(self) -> float:
        """The first call with all that it needs."""
        return self.import_s + self.load_s + self.call_s

    def __str__(self) -> str:
        parts = f"{self.import_s:6.3f} {self.load_s:6.3f} {self.call_s:6.3f} {self.first_s:7.3f} {self.later_us:9.2f}"
        of = f" of {self.tried}" if self.tried else ""
        return f"{self.case:36} {self.what:13} {parts}  {self.variant.partition('__')[2]}{of}"


@dataclass(frozen=True)
class Case:
    """One computation.

    Attributes:
        make: the spec, once gen is imported.
        theirs: the same by torch.
    """

    name: str
    shape: tuple[int, ...]
    dtype: str
    make: Callable[[Any], Any]
    theirs: Callable[[Any, Any], Any]

    def __str__(self) -> str:
        return f"{self.name} {'x'.join(map(str, self.shape))}"


def _laplacian(torch: Any, x: Any) -> Any:
    inner = torch.nn.functional.pad(x[None, None], (1, 1, 1, 1))[0, 0]
    return inner[:-2, 1:-1] + inner[2:, 1:-1] + inner[1:-1, :-2] + inner[1:-1, 2:] - 4 * x


CASES = (
    Case(
        "var f16 axis 0", (167142, 15), "float16", lambda gen: gen.reduction("var", "float16", axis=0),
        lambda torch, x: torch.var(x, 0, correction=0),
    ),
    Case(
        "permute 21043", (43, 30, 223, 46, 16), "float32", lambda gen: gen.permutation((2, 1, 0, 4, 3), "float32"),
        lambda _, x: x.permute(2, 1, 0, 4, 3).contiguous(),
    ),
    Case(
        "5-point stencil", (4001, 4003), "float32",
        lambda gen: gen.stencil([[0, 1, 0], [1, -4, 1], [0, 1, 0]], boundary="constant", dtype="float32"), _laplacian,
    ),
)  # fmt: skip


def ours(case: Case, what: str, home: Path, stub: bool, profile: Path | None) -> Row:
    """The first call of gen in this process."""
    x = _input(case, stub)
    watched = cProfile.Profile()
    if profile is not None:
        watched.enable()
    start = time.perf_counter()
    import gen

    load = gen.load
    imported = time.perf_counter()
    kernel = load(case.make(gen), home=home, device="cpu" if stub else None, tune=BUDGET if what == "tuned" else None)
    loaded = time.perf_counter()
    kernel(x)
    if not stub:
        _torch().cuda.synchronize()
    called = time.perf_counter()
    if profile is not None:
        watched.disable()
        with (profile / f"{case.name} {what}.txt".replace(" ", "-")).open("w") as file:
            pstats.Stats(watched, stream=file).sort_stats("cumtime").print_stats(60)
    later = 0.0 if stub else _later_us(lambda: kernel(x))
    variant = kernel.variant_for(case.shape)
    tried = _tried(home) if what == "tuned" else 0
    return Row(str(case), what, imported - start, loaded - imported, called - loaded, later, variant, tried)


def _tried(home: Path) -> int:
    """How many variants the first call timed that was tuned last."""
    from gen.store.winners import found_at_first_calls

    return max((int(one.evidence["trials"].get("ok", 0)) for one in found_at_first_calls(home)), default=0)


def theirs(case: Case, cache: Path) -> Row:
    """The first call of torch.compile in this process."""
    os.environ["TORCHINDUCTOR_CACHE_DIR"] = str(cache)
    torch, x = _torch(), _input(case, False)
    start = time.perf_counter()
    compiled = torch.compile(lambda y: case.theirs(torch, y), mode="max-autotune-no-cudagraphs")
    compiled(x)
    torch.cuda.synchronize()
    return Row(str(case), "torch.compile", 0.0, 0.0, time.perf_counter() - start, _later_us(lambda: compiled(x)))


def _torch() -> Any:
    return import_module("torch")


def _input(case: Case, stub: bool) -> Any:
    if stub:
        import numpy as np

        return np.ones([min(extent, 40) for extent in case.shape], case.dtype)
    torch = _torch()
    x = torch.rand(case.shape, device="cuda").to(getattr(torch, case.dtype))
    torch.cuda.synchronize()
    return x


def _later_us(call: Callable[[], Any]) -> float:
    torch = _torch()
    flushed = torch.empty(FLUSHED_BYTES, dtype=torch.uint8, device="cuda")
    pairs = [(torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)) for _ in range(LATER_CALLS)]
    for before, after in pairs:
        flushed.zero_()
        before.record()
        call()
        after.record()
    torch.cuda.synchronize()
    return median(1000.0 * float(before.elapsed_time(after)) for before, after in pairs)


def _in_process(work: Callable[..., Any], *arguments: Any) -> Any:
    """What a function gives in a process forked from this one."""
    context = multiprocessing.get_context("fork")
    mine, its = context.Pipe(duplex=False)
    process = context.Process(target=_send, args=(its, work, arguments))
    process.start()
    its.close()
    try:
        return mine.recv()
    except EOFError:
        raise SystemExit(f"{work.__name__} of {arguments[0]} failed: see above") from None
    finally:
        process.join()


def _send(pipe: Connection, work: Callable[..., Any], arguments: tuple[Any, ...]) -> None:
    pipe.send(work(*arguments))


def _device(stub: bool) -> str:
    return "CPU run" if stub else str(_torch().cuda.get_device_name())


def main() -> int:
    """Times all cases and prints a line for each first call."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=Path, metavar="FILE", help="where the rows are written")
    parser.add_argument("--profile", type=Path, metavar="FOLDER", help="where a profile of each first call is written")
    parser.add_argument("--stub", action="store_true", help="on the CPU run, without torch")
    parser.add_argument("--without-peer", action="store_true", help="leave torch.compile out")
    options = parser.parse_args()
    if not options.stub:
        from bench.program import need_gpu

        need_gpu("python bench/first_call.py")
        _torch()
    if options.profile is not None:
        options.profile.mkdir(parents=True, exist_ok=True)
    rows: list[Row] = []
    print(f"{'case':36} {'what':13} import   load   call   first  later us  variant")
    with tempfile.TemporaryDirectory() as place:
        for number, case in enumerate(CASES):
            home = Path(place) / str(number)
            for what in ("untuned", "again") if options.stub else ("untuned", "again", "tuned", "found"):
                rows.append(_in_process(ours, case, what, home, options.stub, options.profile))
                print(rows[-1], flush=True)
            if not (options.stub or options.without_peer):
                rows.append(_in_process(theirs, case, home / "inductor"))
                print(rows[-1], flush=True)
    if options.json is not None:
        content = {
            "schema": 1, "device": _in_process(_device, options.stub), "date": date.today().isoformat(),
            "rows": [{**asdict(row), "first_s": round(row.first_s, 4)} for row in rows],
        }  # fmt: skip
        options.json.write_text(json.dumps(content, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
