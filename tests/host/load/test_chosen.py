"""Which variant `gen.load` gives, why, and what it needs to be imported."""

from __future__ import annotations

import json
import logging
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import gen
from gen.errors import (
    ConfigError,
    GenError,
    ShapeError,
    UnknownNameError,
)
from gen.families import FAMILIES
from gen.families.reduction import Grid, Reduction, ReductionSpec
from gen.families.reduction.algorithms.grid import Flags, FlagsConfig
from gen.runtime import dispatch
from tests.fake_device import FakeDevice, OnDevice
from tests.host.load.given import LARGE, SUM, TRANSPOSE, arange, tuned, winner

TUNED = "reduction_sum_f32__grid_tpb256_u8_v16_bpm4_ldcs"


def default(n: int) -> str:
    """The name of what a sum of so many elements gets untuned."""
    family, spec = Reduction(), ReductionSpec()
    algorithm, config = family.base(spec, family.shape_class(spec, {"n": n}))
    return f"{SUM}__{algorithm}_{config.tag}"


def test_base_where_nothing_is_tuned(backend: FakeDevice, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "gen")
    kernel = gen.load(ReductionSpec(), shape=2**28, device=backend)
    assert kernel.variant == default(2**28)
    assert kernel.why.startswith(f"base, because nothing is tuned for {SUM} ({LARGE}) on Fake GPU")
    assert kernel.source.startswith(f"// {default(2**28)}")
    assert backend.loaded == [kernel.variant]  # at once, not at the first call
    gen.load(SUM, shape=(2**14, 2**14), device=backend)
    gen.load(SUM, device=backend)(OnDevice(arange(3)))
    assert [record.message for record in caplog.records] == [f"{kernel.variant}: {kernel.why}{dispatch.AT_FIRST_CALLS}"]


def test_tuned_for_this_device_and_shape_class(
    backend: FakeDevice, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "gen")
    home = tuned(
        tmp_path / "other",
        winner("reduction_sum_f32__shfl_tpb128_u1", device="Another GPU"),
        winner(TUNED, median_us=355.25, of_limit=0.9531, driver=backend.driver),
    )
    kernel = gen.load(SUM, device=backend, home=home)
    assert kernel.variant_for(2**28) == kernel.variant_for((2**14, 2**14)) == TUNED
    assert kernel.variant_for(5000) == default(5000)
    assert kernel.variant_for(100) == default(100)
    assert kernel.why_for(2**28) == f"tuned on Fake GPU for {LARGE}: median 355.2 us, 95.3 % of the limit"
    assert gen.load(SUM, shape=2**28, device=backend, home=str(home)).variant == TUNED
    (record,) = caplog.records
    assert record.message.startswith(f"{TUNED}: tuned on Fake GPU")
    assert record.levelno == logging.INFO


SMALL_PART = "reduction_sum_f32__grid_tpb128_u8_v16_bpm4"
UNALIGNED, EXACT = "reduction_sum_f32__grid_tpb256_u8_v4_bpm4", "reduction_sum_f32__shfl_tpb256_u8"
PARTS = (
    winner(TUNED), winner(SMALL_PART, within={"n": [0, 2**22]}), winner(UNALIGNED, within={"alignment": [0, 8]}),
    winner(EXACT, within={"n": [2**21 + 5, 2**21 + 5], "alignment": [16, 16]}),
)  # fmt: skip


def test_the_winner_for_a_part_of_a_class_goes_before_that_of_the_class(backend: FakeDevice, tmp_path: Path) -> None:
    kernel = gen.load(SUM, device=backend, home=tuned(tmp_path, *PARTS))
    assert kernel.variant_for(2**28) == TUNED
    assert kernel.variant_for(2**22 + 1) == TUNED
    assert kernel.variant_for(2**22) == SMALL_PART
    assert kernel.variant_for(2**21 + 5) == EXACT
    assert kernel.why_for(2**22) == f"tuned on Fake GPU for {LARGE}, n up to 2^22"
    assert kernel.variant_for(5) == default(5)


def test_an_array_gets_the_winner_of_its_alignment(backend: FakeDevice, tmp_path: Path) -> None:
    kernel = gen.load(SUM, device=backend, home=tuned(tmp_path, *PARTS))
    memory = np.zeros(2**22 + 64, np.float32)
    start = -memory.__array_interface__["data"][0] % 16 // 4
    for place, variant in ((0, TUNED), (1, UNALIGNED), (2, UNALIGNED), (3, UNALIGNED), (4, TUNED)):
        array = memory[start + place : start + place + 2**22 + 1]
        kernel(OnDevice(array))
        assert backend.launched[-1].variant == variant
    scalar = np.zeros(4, np.float32)[1:2].reshape(())  # it is no row of anything
    kernel(OnDevice(memory[start : start + 2**22 + 1]), out=OnDevice(scalar))
    assert backend.launched[-1].variant == TUNED
    kernel(memory[start + 1 : start + 2 + 2**22])  # copied to where it is aligned
    assert backend.launched[-1].variant == TUNED


def test_a_winner_stays_after_a_new_driver(backend: FakeDevice, tmp_path: Path) -> None:
    home = tuned(tmp_path, winner(TUNED, driver="570.1, CUDA 12.8", median_us="fast", of_limit=None))
    why = gen.load(SUM, shape=2**28, device=backend, home=home).why
    assert why == (
        f"tuned on Fake GPU for {LARGE}; measured under the driver 570.1, CUDA 12.8, and this is 580.1, CUDA 13.0"
    )


@pytest.mark.parametrize("number", [10**400, float("nan"), float("inf"), True, "fast"])
def test_evidence_that_is_no_number_is_not_told(backend: FakeDevice, tmp_path: Path, number: object) -> None:
    home = tuned(tmp_path, winner(TUNED, median_us=number, of_limit=number))
    assert gen.load(SUM, shape=2**28, device=backend, home=home).why == f"tuned on Fake GPU for {LARGE}"


@pytest.mark.parametrize(
    ("variant", "reason"),
    [
        ("", "must be FAMILY_SPEC__ALGORITHM_TAG"),
        (
            "reduction_sum_f32__magic_u7",
            "must be one of grid, flags, cluster, single, rows, short_rows, columns, stream",
        ),
        ("reduction_sum_f32__grid_tpb100_u8_v16_bpm4", "tpb"),
        ("reduction_sum_f32__flags_tpb1024_u8_v16_bpm2", "cannot run on Fake GPU"),
        ("transpose_10_b32__tiled_t64_r8_p1_u1", "transpose"),
        ("reduction_sum_f32__grid", "threads_per_block comes there"),
        ("../../etc/passwd", "must be FAMILY_SPEC__ALGORITHM_TAG"),
    ],
)
def test_a_winner_that_cannot_be_used(
    backend: FakeDevice, tmp_path: Path, caplog: pytest.LogCaptureFixture, variant: str, reason: str
) -> None:
    backend.limits = replace(backend.limits, threads_per_multiprocessor=1024)  # two blocks of 1024 threads do not fit
    kernel = gen.load(SUM, shape=2**28, device=backend, home=tuned(tmp_path, winner(variant)))
    assert kernel.variant == default(2**28)
    assert kernel.why.startswith(f"base, because the tuned variant {variant!r} cannot be used:")
    assert reason in kernel.why
    assert f"The tuned variant {variant!r} of {SUM} ({LARGE}) on Fake GPU cannot be used, and base is" in caplog.text


def test_a_winner_that_is_not_repeatable(backend: FakeDevice, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Grid, "repeatable", False)
    kernel = gen.load(SUM, shape=2**28, device=backend, home=tuned(tmp_path, winner(TUNED)))
    assert "does not give the same bits on every run" in kernel.why


def test_a_winner_that_cannot_take_these_sizes(
    backend: FakeDevice, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    name = "reduction_sum_f32__shfl_tpb128_u1"
    kernel = gen.load(SUM, device=backend, home=tuned(tmp_path, winner(name)))
    assert kernel.variant_for(2**28) == name
    assert kernel.variant_for(2**39) == default(2**39)
    assert f"{name} cannot take these sizes: it needs 4294967296 blocks" in caplog.text
    for algorithm in Reduction.algorithms.values():
        monkeypatch.setattr(type(algorithm), "unsupported_extents", lambda *_: "the test wants it")
    with pytest.raises(
        ConfigError, match=r"cannot take these sizes: the test wants it\. Call it for parts of the array$"
    ):
        kernel.variant_for(2**40)  # the choice of 2**39 is remembered


@pytest.mark.parametrize("text", ["", "{", "[]", '{"schema": 9}', '{"schema": 1, "winners": [3]}'])
def test_a_torn_file_of_winners(
    backend: FakeDevice, tmp_path: Path, caplog: pytest.LogCaptureFixture, text: str
) -> None:
    kernel = gen.load(SUM, shape=5, device=backend, home=tuned(tmp_path, text=text))
    assert kernel.why.startswith("base")
    assert f"No tuned variant is used: {tmp_path / 'tuned.json'}" in caplog.text


def _wide_base(_: Reduction, __: ReductionSpec, shape_class: str) -> tuple[str, FlagsConfig]:
    return "flags", FlagsConfig(threads_per_block=1024, blocks_per_sm=2 if shape_class == LARGE else 1)


def test_a_base_that_the_device_cannot_run(backend: FakeDevice, monkeypatch: pytest.MonkeyPatch) -> None:
    # One block of 1024 threads on a multiprocessor.
    backend.limits = replace(backend.limits, threads_per_multiprocessor=1024)
    monkeypatch.setattr(Reduction, "base", _wide_base)
    monkeypatch.setattr(Reduction, "heuristic_configs", lambda *_: ())
    assert gen.load(SUM, shape=2**28, device=backend).variant == "reduction_sum_f32__flags_tpb1024_u4_v16_bpm1"
    monkeypatch.setattr(Flags, "infeasible", lambda *_: "the test wants it")
    with pytest.raises(ConfigError, match=r"cannot run on Fake GPU: the test wants it\. Pass another as device=$"):
        gen.load(SUM, shape=2**28, device=backend)


def test_a_kernel_without_a_shape_has_no_one_variant(backend: FakeDevice) -> None:
    kernel = gen.load(SUM, device=backend)
    for name in ("variant", "why", "source"):
        with pytest.raises(GenError, match=r"every call picks its variant. Ask variant_for"):
            getattr(kernel, name)
    assert repr(kernel) == f"<gen kernel {SUM} on Fake GPU>"


@pytest.mark.parametrize("shape", [-1, (2, -2), "8", 2.0, True, None, ((2,), 2), (2**3, 2.5)])
def test_a_shape_that_is_none(backend: FakeDevice, shape: Any) -> None:
    with pytest.raises(ShapeError, match="shape must be a number or a tuple of numbers"):
        gen.load(SUM, device=backend).variant_for(shape)


def test_a_shape_that_the_spec_does_not_take(backend: FakeDevice) -> None:
    with pytest.raises(ShapeError, match=r"in must have 2 axes \(got \(5,\)\)"):
        gen.load(TRANSPOSE, shape=5, device=backend)


def test_a_spec_that_is_none(backend: FakeDevice) -> None:
    with pytest.raises(UnknownNameError, match="The spec"):
        gen.load("sum", device=backend)
    with pytest.raises(UnknownNameError, match=r"this is a variant of one \(got 'transposeSmem'\). Its spec is transp"):
        gen.load("transposeSmem", device=backend)
    with pytest.raises(UnknownNameError, match="must be a name, or a spec of one of the families"):
        gen.load(object(), device=backend)  # type: ignore[call-overload]


def test_a_spec_that_only_its_file_spells(backend: FakeDevice, tmp_path: Path) -> None:
    spec = FAMILIES[2].from_json({**FAMILIES[2].catalogue[0].to_json(), "word": "blur"})
    name = f"stencil_{spec.label}"
    content = {"schema": 1, "specs": {name: dict(spec.to_json())}}
    (tmp_path / "specs.json").write_text(json.dumps(content), encoding="utf-8")
    assert gen.load(name, shape=(4, 4), device=backend, home=tmp_path).variant.startswith(name)


def test_a_home_that_is_a_file(backend: FakeDevice, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(GenError, match="home must be a folder"):
        gen.load(SUM, device=backend, home=tmp_path / "file")


@pytest.mark.parametrize("home", ["", 5, [], b"home"])
def test_a_home_that_names_no_folder(backend: FakeDevice, home: Any) -> None:
    with pytest.raises(GenError, match=rf"home must name a folder \(got {re.escape(repr(home))}\)"):
        gen.load(SUM, device=backend, home=home)


@pytest.mark.parametrize("arch", ["", "sm_1", 90, ["sm_90"], np.zeros(2)])
def test_an_architecture_that_there_is_not(arch: Any) -> None:
    with pytest.raises(UnknownNameError, match=r"^The architecture must be sm_ and the digits"):
        gen.choose(SUM, 100, arch=arch)


def test_without_the_libraries_of_a_gpu_the_error_says_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "gen.gpu.cuda", raising=False)
    monkeypatch.setitem(sys.modules, "cuda.bindings", None)
    with pytest.raises(GenError, match=r"cuda-bindings is needed .*pip install"):
        gen.load(SUM)


def test_importing_load_needs_no_gpu_and_no_compiler() -> None:
    code = (
        "import sys, gen; assert 'numpy' not in sys.modules; gen.load; "
        "print([name for name in ('pycuda', 'cuda.bindings', 'cuda.core', 'torch', 'cupy') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
