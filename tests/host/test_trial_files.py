"""Trials go to other tuners: T4 results, and tables of search spaces."""

from __future__ import annotations

import gzip
import json
from dataclasses import fields, replace
from pathlib import Path
from typing import Any, get_args

import jsonschema
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench.predict import Measured, read_table
from gen.errors import StoreError
from gen.store.trial_files import (
    _INVALIDITY,
    text_of_t4,
    write_table,
)
from gen.store.trials import Status, StoredTrial, Trials

SCHEMA = json.loads((Path(__file__).parent.parent / "t4-results.schema.json").read_text())
ROW = StoredTrial(
    key="1f", device="NVIDIA H100 80GB HBM3", driver="580.1, CUDA 13.0", compiler="nvrtc 13", options="-std=c++17",
    protocol="cold 2", spec="transpose_10_b32", shape_class="any size", extents={"rows": 64, "cols": 96},
    variant="transpose_10_b32__tiled_t64_r8_p1_u1", algorithm="tiled",
    config={"tile_dim": 64, "load_modifier": "none", "swizzle": True}, status="ok", times_us=(10.25, 1 / 3, 11.0),
    reason="", registers=32, spill_bytes=8, shared_bytes=4096, ended="2026-11-22T02:13:00+00:00", compile_ms=31.5,
    others=("process 7 (python3), 512 MiB",), sm_mhz=1980,
)  # fmt: skip
WRONG = replace(ROW, key="2e", status="wrong_result", times_us=(), reason='out: 3 "elements"\nµ', alignment=4)
texts = st.text(max_size=8)
numbers = st.integers(0, 2**40)


@st.composite
def rows(draw: st.DrawFn) -> StoredTrial:
    status = draw(st.sampled_from(get_args(Status)))
    times = st.lists(st.floats(0, 1e9), min_size=1, max_size=3).map(tuple)
    values = {one.name: draw(texts) for one in fields(StoredTrial) if one.type == "str"}
    names = st.text(max_size=8).filter(lambda name: name != "algorithm")
    return StoredTrial(
        **{**values, "key": draw(st.text(min_size=1, max_size=8))},
        status=status,
        times_us=draw(times) if status == "ok" else (),
        extents=draw(st.dictionaries(texts, numbers, max_size=2)),
        config=draw(st.dictionaries(names, st.booleans() | numbers | texts | st.floats(-1e9, 1e9), max_size=3)),
        others=draw(st.lists(texts, max_size=2).map(tuple)),
        registers=draw(numbers), spill_bytes=draw(numbers), shared_bytes=draw(numbers), sm_mhz=draw(numbers),
        alignment=draw(st.sampled_from([1, 2, 4, 8, 16])), compile_ms=draw(st.floats(0, 1e9)),
    )  # fmt: skip


@given(st.lists(rows(), max_size=3))
def test_rows_are_valid_t4(given_rows: list[StoredTrial]) -> None:
    content = json.loads(text_of_t4(given_rows))
    jsonschema.validate(content, SCHEMA)
    assert len(content["results"]) == len(given_rows)
    for one, result in zip(given_rows, content["results"], strict=True):
        told = {each["name"]: each["value"] for each in result["measurements"]}
        assert (told["key"], told["status"], told["registers"]) == (one.key, one.status, one.registers)
        assert result["configuration"] == {"algorithm": one.algorithm, **one.config}


def test_a_result_says_what_other_tuners_look_for() -> None:
    content = json.loads(text_of_t4([ROW, WRONG]))
    assert content["schema_version"] == "1.0.0"
    right, wrong = content["results"]
    assert right["configuration"] == {"algorithm": "tiled", "tile_dim": 64, "load_modifier": "none", "swizzle": True}
    assert right["times"]["runtimes"] == [0.01025, 1 / 3000, 0.011]
    assert right["times"]["compilation"] == right["times"]["compilation_time"] == 31.5
    assert (right["invalidity"], right["correctness"]) == ("correct", 1.0)
    assert right["measurements"][0] == {"name": "time", "value": 0.01025, "unit": "ms"}
    assert right["timestamp"] == ROW.ended
    assert (wrong["invalidity"], wrong["correctness"], wrong["times"]["runtimes"]) == ("correctness", 0.0, [])


def test_every_status_has_an_invalidity_of_the_format() -> None:
    assert set(_INVALIDITY) == set(get_args(Status))
    assert set(_INVALIDITY.values()) == set(SCHEMA["$defs"]["result"]["properties"]["invalidity"]["enum"])


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (("schema_version",), "1.0"),
        (("results", 0, "invalidity"), "ok"),
        (("results", 0, "correctness"), "yes"),
        (("results", 0, "configuration"), []),
        (("results", 0, "times", "runtimes"), []),
        (("results", 0, "times", "compilation_time"), "1"),
        (("results", 0, "measurements", 0, "value"), {}),
    ],
)
def test_the_schema_refuses_what_is_none(path: tuple[Any, ...], value: object) -> None:
    content = json.loads(text_of_t4([ROW]))
    place = content
    for step in path[:-1]:
        place = place[step]
    place[path[-1]] = value
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(content, SCHEMA)


def test_what_is_merged_is_kept_once_and_hides_nothing_that_was_measured(tmp_path: Path) -> None:
    store = Trials(tmp_path)
    assert store.add([ROW, WRONG]) == 2
    other = replace(ROW, times_us=(1.0,))
    assert store.add([other, replace(WRONG, key="3d")]) == 1
    assert [row.key for row in store.rows()] == ["1f", "2e", "3d"]
    assert next(store.rows(status="ok")) == ROW
    store.close()


def test_a_table_keeps_configurations_with_their_times(tmp_path: Path) -> None:
    other = replace(ROW, key="4", algorithm="naive", config={"block_x": 32}, times_us=(2000.0,), compile_ms=0.0)
    place = tmp_path / "trials.csv.gz"
    write_table(place, [WRONG, other, ROW])
    first = place.read_bytes()
    write_table(place, [ROW, WRONG, other])
    assert place.read_bytes() == first
    lines = gzip.decompress(first).decode().splitlines()
    assert lines[0] == "spec,shape,algorithm,block_x,load_modifier,swizzle,tile_dim,time_ms,compile_ms"
    assert lines[3] == "transpose_10_b32,cols=96 rows=64,tiled,,none,1,64,0.01025,31.5"
    tiled = {"load_modifier": "none", "swizzle": "1", "tile_dim": "64"}
    assert list(read_table(place)) == [
        Measured("transpose_10_b32", "alignment=4 cols=96 rows=64", "tiled", tiled, None, 31.5),
        Measured("transpose_10_b32", "cols=96 rows=64", "naive", {"block_x": "32"}, 2.0, 0.0),
        Measured("transpose_10_b32", "cols=96 rows=64", "tiled", tiled, 0.01025, 31.5),
    ]


def test_every_table_that_is_kept_can_be_replayed() -> None:
    places = sorted((Path(__file__).parents[2] / "bench" / "trials").glob("*.csv.gz"))
    assert places
    for place in places:
        found = list(read_table(place))
        assert any(one.time_ms is not None for one in found)
        assert len({(one.spec, one.shape, one.algorithm, *one.config.items()) for one in found}) == len(found)


@pytest.mark.parametrize(
    "content",
    [b"", b"a,b\n", b"spec,shape,algorithm,time_ms,compile_ms\nx,y,z,1\n",
     b"spec,shape,algorithm,time_ms,compile_ms\nx,y,z,fast,1\n", b"spec,shape,algorithm,u,u,time_ms,compile_ms\n",
     b"\xff", b"\x00"],
)  # fmt: skip
@pytest.mark.parametrize("name", ["a.csv", "a.csv.gz"])
def test_a_table_that_is_none_is_refused(tmp_path: Path, content: bytes, name: str) -> None:
    place = tmp_path / name
    place.write_bytes(gzip.compress(content) if name.endswith(".gz") else content)
    with pytest.raises(StoreError, match=r"a\.csv"):
        list(read_table(place))
    place.write_bytes(b"no gzip")
    with pytest.raises(StoreError, match=r"a\.csv"):
        list(read_table(place))
