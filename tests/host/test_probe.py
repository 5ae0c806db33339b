"""What the probes promise beside what every family does: specs outside the catalogue, names, refusals."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gen.dtypes import B8, B32, B128, F32, F64, I32, DType
from gen.errors import ConfigError, ShapeError, SpecError
from gen.families import FAMILIES
from gen.families.base import Array, Layout, Variant
from gen.families.names import find_variant, named_variant, parse_label, variant
from gen.families.probe import BITS, Offset, OffsetSpec, Probes, ProbeSpec, Records, RecordSpec, TileSpec
from gen.proof.host import HostRunner
from gen.proof.prover import prove

PROBES = Probes()
LAYOUTS = tuple(f"set_{one}_read_{other}" for one in ("row", "col") for other in ("row", "col"))


def specs() -> st.SearchStrategy[ProbeSpec]:
    floats = st.sampled_from((F32, F64))
    return st.one_of(
        st.builds(OffsetSpec, st.sampled_from(("read", "write")), st.integers(0, 1024), floats),
        st.builds(RecordSpec, st.sampled_from(("aos", "soa")), st.integers(2, 16), floats),
        st.builds(
            TileSpec, st.sampled_from(LAYOUTS), st.sampled_from((16, 32)), st.sampled_from((16, 32)),
            st.sampled_from(BITS),
        ),
    )  # fmt: skip


@given(specs())
def test_a_label_says_all_of_a_spec(spec: ProbeSpec) -> None:
    assert parse_label(PROBES, spec.label, {}) == spec
    assert PROBES.from_json(spec.to_json()) == spec


OUTSIDE: tuple[tuple[ProbeSpec, str], ...] = (
    *((OffsetSpec(shifts, offset, F64), "offset") for shifts in ("read", "write") for offset in (1, 1024)),
    (RecordSpec("aos", 3), "records"),
    (RecordSpec("soa", 16, F64), "records"),
    *((TileSpec(layout, 16, 32, B8), "tile") for layout in LAYOUTS),
    *((TileSpec(layout, 32, 16, B128), "tile") for layout in LAYOUTS),
)


@pytest.mark.exhaustive
def test_specs_outside_the_catalogue_and_kernels_of_the_literature_equal_numpy(host_runner: HostRunner) -> None:
    made = [variant(PROBES, spec, name, PROBES.algorithms[name].config()) for spec, name in OUTSIDE]
    made += [named_variant(PROBES, named) for named in PROBES.named]
    by_spec = sorted({one.name: one for one in made}.values(), key=lambda one: one.name)
    for proof in prove(host_runner, by_spec):
        assert proof.failure is None, str(proof.failure)


@pytest.mark.parametrize("shifts", ["read", "write"])
def test_an_offset_rolls_the_sum(shifts: str) -> None:
    a = np.arange(5, dtype=np.float32)
    out = PROBES.oracle(OffsetSpec(shifts, 2), {"a": a, "b": 10 * a}, {"n": 5})["out"].value
    assert out.tolist() == ([22, 33, 44, 0, 11] if shifts == "read" else [33, 44, 0, 11, 22])


def test_fields_are_raised_by_tens_whatever_their_layout() -> None:
    records: Array = np.array([[1, 2], [3, 4], [5, 6]], np.float32)
    for layout, given_ in (("aos", records), ("soa", records.T)):
        out = PROBES.oracle(RecordSpec(layout), {"in": given_}, {"n": 3})["out"].value
        assert (out if layout == "aos" else out.T).tolist() == [[11, 22], [13, 24], [15, 26]]


@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_tile_is_transposed_if_it_is_read_otherwise_than_it_was_filled(layout: str) -> None:
    tiles = np.arange(2 * 16 * 32, dtype=np.uint32).reshape(2, 16, 32)
    out = PROBES.oracle(TileSpec(layout, 16, 32), {"in": tiles}, {"tiles": 2})["out"].value
    same = layout in ("set_row_read_row", "set_col_read_col")
    assert np.array_equal(out, tiles if same else tiles.transpose(0, 2, 1))


def test_every_kernel_of_the_literature_has_its_tile_as_its_block() -> None:
    blocks = {named.name: named_variant(PROBES, named).plan.launches[0].block for named in PROBES.named}
    assert blocks["setRowReadCol"] == (1024, 1, 1)
    assert blocks["setRowReadCol32x16"] == blocks["readOffset11"] == (512, 1, 1)


def shared_bytes(name: str) -> int:
    return find_variant(FAMILIES, name, {}).plan.launches[0].shared_bytes.at({})


def test_dynamic_shared_memory_is_in_the_plan() -> None:
    assert shared_bytes("setRowReadCol") == shared_bytes("setRowReadColPad") == 0
    assert shared_bytes("setRowReadColDyn") == 32 * 32 * 4
    assert shared_bytes("setRowReadColDynPad") == 32 * 33 * 4
    assert shared_bytes("setRowReadColDynPad32x16") == 16 * 34 * 4


def offset(dtype: DType) -> Callable[[], ProbeSpec]:
    return lambda: OffsetSpec(dtype=dtype)


WRONG: list[tuple[Callable[[], Any], str]] = [
    (lambda: OffsetSpec("both"), "probe.shifts must be one of read, write (got 'both')"),
    (lambda: OffsetSpec("read", -1), "probe.offset must be a number from 0 to 1024 (got -1)"),
    (lambda: OffsetSpec("read", True), "(got True)"),
    (offset(I32), "probe.dtype must be one of f32, f64 (got i32)"),
    (lambda: RecordSpec("list"), "probe.layout must be one of aos, soa (got 'list')"),
    (lambda: RecordSpec("aos", 1), "probe.fields must be a number from 2 to 16 (got 1)"),
    (lambda: TileSpec("rows"), "probe.layout must be one of set_row_read_row, "),
    (lambda: TileSpec("set_row_read_row", 64), "probe.rows must be one of 16, 32 (got 64)"),
    (lambda: TileSpec("set_row_read_row", 16, 8), "probe.cols must be one of 16, 32 (got 8)"),
    (lambda: TileSpec(dtype=F32), "probe.dtype must be one of b8, b16, b32, b64, b128 (got f32)"),
    (lambda: PROBES.from_json({"probe": "speed"}), "probe.probe must be one of offset, records, tile"),
]


@pytest.mark.parametrize(("make", "says"), WRONG, ids=[says for _, says in WRONG])
def test_a_probe_that_is_none_is_refused(make: Callable[[], Any], says: str) -> None:
    with pytest.raises(SpecError) as caught:
        make()
    assert says in str(caught.value)


def test_an_algorithm_takes_its_own_specs_only() -> None:
    with pytest.raises(ConfigError, match="it computes no aos2_f32"):
        variant(PROBES, RecordSpec(), Offset(), Offset.config())
    with pytest.raises(ConfigError, match="it computes no read0_f32"):
        variant(PROBES, OffsetSpec(), Records(), Records.config())
    with pytest.raises(ConfigError, match="512 threads do not divide a tile of 256 elements"):
        find_variant(FAMILIES, "probe_set_row_read_row_16x16_b32__tile_tpb512_p0", {})


def test_records_of_other_fields_do_not_fit() -> None:
    three = Layout((7, 3), (12, 4), np.dtype("f4"))
    with pytest.raises(ShapeError, match="in must have an extent of 2 along axis 1"):
        PROBES.extents(RecordSpec(), {"in": three})
    tiles = Layout((7, 32, 16), (2048, 64, 4), B32.numpy)
    with pytest.raises(ShapeError, match="in must have an extent of 16 along axis 1"):
        PROBES.extents(TileSpec("set_row_read_row", 16, 32), {"in": tiles})


def named(name: str) -> Variant:
    return find_variant(FAMILIES, name, {})


def test_an_offset_of_nothing_is_not_in_the_text() -> None:
    from gen.emit.render import render

    assert "kOffset" not in render(named("readOffset")).partition("constexpr")[2]
    assert "shifted" in render(named("readOffset11"))
