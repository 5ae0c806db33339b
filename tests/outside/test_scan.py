"""A family from outside the package costs one module and one folder of templates, and no change to gen."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gen.emit.folder import all_of_catalogue, base_of_catalogue
from gen.emit.render import declared_inputs, environment_of, render, sources
from gen.errors import ShapeError, SpecError
from gen.families import FAMILIES, families
from gen.families.base import Layout, Limits, Variant
from gen.families.names import find_variant
from gen.families.plans import steps
from gen.paths import output_home
from gen.proof.cases import DRAWN
from gen.proof.host import HostRunner
from gen.store.folder import variants_of_home
from tests.host import test_render as rules
from tests.host.cli.command import run
from tests.host.test_variants import test_variants_equal_numpy as equals_numpy
from tests.outside.scan_family.scan import Scan, ScanSpec, Totals, TotalsConfig

CHECKOUT = Path(__file__).parents[2]
PACKAGE = Path(__file__).parent / "scan_family"
NAME = "scan:Scan"
SCAN = Scan()
SPEC = SCAN.catalogue[0]
VARIANTS = tuple(all_of_catalogue((SCAN,)))
BUILT = str(output_home())  # what proofs build is kept between runs of the tests, by content
TOTALS = "scan_sum_f32__totals_tpb128_i4"


@pytest.fixture(scope="module")
def texts() -> Mapping[str, str]:
    """The text of every legal variant by name."""
    return {made.name: render(made) for made in VARIANTS}


@pytest.fixture
def outside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of modules, beside that of the family; both are on the path of this process until the test ends."""
    monkeypatch.setenv("GEN_HOME", str(tmp_path / "home"))
    monkeypatch.setattr(sys, "path", [str(PACKAGE), str(tmp_path), *sys.path])
    for module in ("scan", "other"):
        monkeypatch.delitem(sys.modules, module, raising=False)
    return tmp_path


def announce(folder: Path, value: str) -> None:
    """What an installer writes for a package that announces this family."""
    info = folder / "outside_scan-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: outside-scan\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(f"[gen.families]\nany = {value}\n")


def start(home: Path, *arguments: str, path: tuple[Path, ...] = ()) -> subprocess.CompletedProcess[str]:
    """Runs gen in a process of its own, in a folder that is neither the checkout's nor the family's."""
    return subprocess.run(
        [sys.executable, "-m", "gen", *arguments],
        cwd=home,
        env={
            **os.environ,
            "GEN_HOME": str(home),
            "PYTHONPATH": os.pathsep.join(map(str, (CHECKOUT, PACKAGE, *path))),
        },
        capture_output=True,
        text=True,
        check=False,
    )


def data(home: Path, *arguments: str, path: tuple[Path, ...] = ()) -> Any:
    """What a command that must end well prints as JSON."""
    done = start(home, *arguments, "--json", path=path)
    assert (done.returncode, done.stderr) == (0, "")
    return json.loads(done.stdout)


def test_the_family_is_one_module_and_one_folder_of_templates() -> None:
    files = {str(path.relative_to(PACKAGE)) for path in PACKAGE.rglob("*") if path.is_file()}
    templates = {"templates/scan/_scan.cu.jinja", "templates/scan/block.cu.jinja", "templates/scan/totals.cu.jinja"}
    assert {file for file in files if "__pycache__" not in file} == {"scan.py", *templates}
    assert all(family.name != SCAN.name for family in FAMILIES)


@pytest.mark.usefixtures("outside")
def test_it_is_found_by_module_and_name() -> None:
    found = families(NAME)
    assert found[: len(FAMILIES)] == FAMILIES
    assert [family.name for family in found[len(FAMILIES) :]] == ["scan"]


def test_it_is_found_by_an_entry_point(outside: Path) -> None:
    assert families() == FAMILIES
    announce(outside, NAME)
    assert [family.name for family in families()[len(FAMILIES) :]] == ["scan"]
    # Announced and named, it is still one family.
    assert [family.name for family in families(NAME)[len(FAMILIES) :]] == ["scan"]


def test_an_announced_family_needs_no_option(tmp_path: Path) -> None:
    announce(tmp_path, NAME)
    listed = data(tmp_path, "list", path=(tmp_path,))["families"]
    assert [family["name"] for family in listed] == [*(family.name for family in FAMILIES), "scan"]


@pytest.mark.usefixtures("outside")
def test_list_shows_all_that_the_module_declares() -> None:
    (listed,) = run("--family", NAME, "list", "scan", "--json").data["families"]
    assert [spec["name"] for spec in listed["specs"]] == ["scan_sum_f32"]
    assert {a["name"]: a["legal_configs"] for a in listed["algorithms"]} == {"block": 3, "totals": 12}
    assert [p["label"] for p in listed["algorithms"][1]["parameters"]] == ["tpb", "i", "ld"]


def test_render_prints_the_text(tmp_path: Path, texts: Mapping[str, str]) -> None:
    done = start(tmp_path, "--family", NAME, "render", TOTALS)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == texts[TOTALS]


def test_generate_writes_its_kernels_beside_the_others(tmp_path: Path, texts: Mapping[str, str]) -> None:
    folder = tmp_path / "kernels"
    written = data(tmp_path, "--family", NAME, "generate", "--home", str(folder))["changed"]
    expected = [made.name for made in variants_of_home((*FAMILIES, SCAN), folder)]
    assert sorted(written) == sorted(f"{name}.cu" for name in expected)
    for made in base_of_catalogue((SCAN,)):
        assert (folder / f"{made.name}.cu").read_text() == texts[made.name]


def test_prove_runs_a_cover_of_its_space(tmp_path: Path) -> None:
    proven = data(tmp_path, "--family", NAME, "prove", "scan", "--home", BUILT)
    assert proven["failed"] == proven["skipped"] == 0
    names = {verdict["name"] for verdict in proven["variants"]}
    assert {made.name for made in base_of_catalogue((SCAN,))} <= names <= {made.name for made in VARIANTS}
    assert all(verdict["cases"] == 2 * (len(tuple(SCAN.cases(SPEC))) + DRAWN) for verdict in proven["variants"])


@pytest.mark.usefixtures("outside")
def test_a_rehearsal_compiles_it_and_says_what_a_gpu_would_measure(monkeypatch: pytest.MonkeyPatch) -> None:
    only = find_variant((*FAMILIES, SCAN), TOTALS, {})
    monkeypatch.setattr("gen.tune.targets.of_spec", lambda *_: (only,))  # looking at them all takes minutes
    done = run("--family", NAME, "tune", "scan_sum_f32", "--arch", "sm_90", "--home", BUILT, "--json")
    begun, ended = done.err.splitlines()
    assert begun == "Variants to emit, compile and prove: scan_sum_f32 1"
    assert ended.startswith("scan_sum_f32: emitted, compiled and proven, ")
    tuned = done.data
    (made,) = tuned["variants"]
    assert made["name"] == TOTALS
    assert made["compiled"]
    assert made["verdict"] == "proven"
    (prospect,) = tuned["would_measure"]
    assert prospect["feasible"] == len(VARIANTS)
    assert prospect["limit"] == "copy"
    assert prospect["shape_classes"] == list(SCAN.shape_classes(SPEC))


@pytest.mark.parametrize(
    ("family", "says"),
    [
        ("scan", "MODULE:NAME"),
        ("scan:", "MODULE:NAME"),
        ("", "MODULE:NAME"),
        ("scan:Absent", "has no attribute 'Absent'"),
        ("absent_module:Scan", "No module named 'absent_module'"),
        ("scan:ScanSpec", "derived from gen.families.base.Family"),
        ("other:Scan", "No module named 'needed_by_other'"),
        ("other:Half", "also defines base, cases, "),
        ("other:Broken", "never closed"),
    ],
)
def test_a_wrong_family_is_bad_usage(family: str, says: str, outside: Path) -> None:
    code = {
        "other:Scan": "import needed_by_other\n",
        "other:Half": "from gen.families.base import Family\nclass Half(Family):\n    name = 'half'\n",
        "other:Broken": "class Broken(\n",
    }
    (outside / "other.py").write_text(code.get(family, ""))
    ended = run("--family", family, "list")
    assert (ended.status, ended.out) == (2, "")
    assert ended.err.startswith("error: ")
    assert ended.err.count("\n") == 1
    assert says in ended.err


def test_a_wrong_family_ends_a_process_without_a_traceback(tmp_path: Path) -> None:
    done = start(tmp_path, "--family", "scan:Absent", "list")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("error: The family must be MODULE:NAME")
    assert done.stderr.count("\n") == 1


@pytest.mark.parametrize("name", ["scan_sum_f32__total_tpb64_i1", "scan_max_f32__totals_tpb64_i1", "scan_sum_f32__"])
@pytest.mark.usefixtures("outside")
def test_a_wrong_name_within_it_is_bad_usage(name: str) -> None:
    ended = run("--family", NAME, "render", name)
    assert ended.status == 2
    assert ended.err.count("\n") == 1


@pytest.mark.parametrize("algorithm", SCAN.algorithms)
def test_variants_equal_numpy(algorithm: str, host_runner: HostRunner) -> None:
    equals_numpy(tuple(made for made in VARIANTS if made.algorithm.name == algorithm), host_runner)


@pytest.mark.parametrize("made", VARIANTS, ids=lambda made: made.name)
def test_a_name_gives_back_its_variant(made: Variant) -> None:
    found = find_variant((*FAMILIES, SCAN), made.name, {})
    assert found.family is SCAN
    assert found == Variant(SCAN, made.spec, SCAN.algorithms[made.algorithm.name], made.config)


@pytest.mark.parametrize(
    "rule",
    [
        rules.test_the_header_names_template_spec_and_config,
        rules.test_every_kernel_of_the_plan_is_in_the_text_and_no_other,
        rules.test_every_variant_asserts_what_it_stands_on,
        rules.test_every_text_stands_alone_and_is_plain,
        rules.test_lines_are_under_a_hundred_columns_but_for_the_name,
        rules.test_parameters_that_are_off_are_not_in_the_text,
    ],
    ids=lambda rule: rule.__name__.removeprefix("test_"),
)
def test_its_texts_keep_the_rules_of_all_texts(
    rule: Callable[[Mapping[str, str]], None], texts: Mapping[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rules, "FAMILIES", (SCAN,))
    rule(texts)


def test_its_texts_are_fixed_points_of_clang_format(texts: dict[str, str], tmp_path: Path) -> None:
    rules.test_every_text_is_a_fixed_point_of_clang_format(SCAN, texts, tuple(texts), tmp_path)


def test_its_templates_import_shared_partials_and_its_own() -> None:
    environment = environment_of(SCAN)
    assert sources(environment, Totals.template) == (
        "_block.cu.jinja",
        "_memory.cu.jinja",
        "scan/_scan.cu.jinja",
        "scan/totals.cu.jinja",
    )
    for name in ("scan/_scan.cu.jinja", *(algorithm.template for algorithm in SCAN.algorithms.values())):
        assert declared_inputs(environment, name) is not None


@pytest.mark.parametrize(
    ("n", "grids"),
    [(0, []), (1, [1]), (64, [1]), (65, [1, 1, 2]), (128, [1, 1, 2]), (129, [2, 1, 3]), (64 * 200, [199, 1, 200])],
)
def test_only_shares_before_the_last_are_added_up(n: int, grids: list[int]) -> None:
    plan = Totals().plan(SPEC, TotalsConfig(threads_per_block=64, items_per_thread=1))
    sizes = {"n": n, **Limits.of("sm_90").sizes()}
    assert [step.grid[0] for step in steps(plan, sizes)] == grids
    assert plan.scratch[0].bytes.at(sizes) == 4 * max(len(range(0, n, 64)) - 1, 0)


def test_what_no_grid_holds_is_not_covered() -> None:
    config, limits = TotalsConfig(threads_per_block=64, items_per_thread=1), Limits.of("sm_90")
    most = 64 * (2**31 - 1)
    assert Totals().unsupported_extents(SPEC, config, {"n": most}, limits) is None
    assert "a grid has at most" in (Totals().unsupported_extents(SPEC, config, {"n": most + 1}, limits) or "")


@given(st.lists(st.integers(-8, 8), max_size=300))
def test_the_oracle_is_exact_for_integers(values: list[int]) -> None:
    expected = SCAN.oracle(SPEC, {"in": np.array(values, np.float32)}, {"n": len(values)})["out"]
    assert expected.magnitude is None
    assert expected.value.tolist() == [sum(values[: place + 1]) for place in range(len(values))]


@given(st.lists(st.floats(width=32, allow_nan=False, allow_infinity=False), min_size=1, max_size=50))
def test_the_magnitude_is_the_running_sum_of_magnitudes(values: list[float]) -> None:
    values = [*values, 1 / 3]  # no integer times a power of two that is large enough
    expected = SCAN.oracle(SPEC, {"in": np.array(values, np.float32)}, {"n": len(values)})["out"]
    assert expected.magnitude is not None
    assert (expected.magnitude >= np.abs(expected.value)).all()
    assert expected.magnitude == pytest.approx(np.add.accumulate(np.abs(np.array(values, np.float32), dtype=float)))


def test_what_it_cannot_compute_is_refused_by_name() -> None:
    assert SCAN.from_json(SPEC.to_json()) == SPEC
    with pytest.raises(SpecError, match=r"scan\.op must be 'sum' \(got 'max'\)"):
        ScanSpec("max")
    with pytest.raises(SpecError, match=r"scan\.dtype must be one of"):
        SCAN.from_json({"op": "sum", "dtype": "float"})
    with pytest.raises(ShapeError, match=r"in must be contiguous"):
        SCAN.extents(SPEC, {"in": Layout((4,), (8,), np.dtype("f4"))})
    with pytest.raises(ShapeError, match=r"out must have 4 n"):
        SCAN.extents(SPEC, {name: Layout((n,), (4,), np.dtype("f4")) for name, n in (("in", 4), ("out", 5))})


def test_no_date_host_or_path_is_in_its_texts(texts: Mapping[str, str]) -> None:
    rules.test_no_date_host_or_path_is_in_any_text(texts, tuple(texts))
