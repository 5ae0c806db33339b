"""`gen prove`, and a family from outside."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import gen
from gen.emit.folder import base_of_catalogue
from gen.emit.kernel_file import read_kernel
from gen.emit.launch import HOST_ONLY
from gen.emit.render import render
from gen.errors import CompileError
from gen.families import FAMILIES
from gen.families.base import Variant
from gen.families.names import find_variant, illegal, variant
from gen.proof.verdicts import Host, Verdict
from tests.fakes import OracleRunner
from tests.host.cli.command import CHECKOUT, run


@pytest.mark.usefixtures("oracle")
@pytest.mark.parametrize("name", ["reduceShfl", "transpose", "reduction_sum_f32__grid_tpb256_u4_v16_bpm2"])
def test_a_folder_with_the_name_of_a_kernel_is_not_in_its_way(
    name: str, home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for folder in (name, "kernels", "__kernels"):
        (tmp_path / folder).mkdir()
    alone = run("prove", name, "--home", home)
    Path(name).rmdir()
    assert alone.out == run("prove", name, "--home", home).out
    assert f"{name} is the name of kernels here; the folder is ./{name}." in alone.err
    Path(name).mkdir()
    for folder in ("kernels", "__kernels", f"./{name}"):
        assert "must hold .cu files" in run("prove", folder, "--home", home).err


@pytest.mark.usefixtures("oracle")
def test_prove_shows_every_verdict() -> None:
    shown = run("prove")
    assert shown.status == 0
    data = run("prove", "--json").data
    assert data["failed"] == 0
    assert data["proven"] + data["skipped"] == len(data["variants"])
    assert data["proven"] > len(base_of_catalogue(FAMILIES))
    assert all(one["name"] in shown.out and one["verdict"] in ("proven", "skipped") for one in data["variants"])
    skipped = {one["name"]: one["reason"] for one in data["variants"] if one["verdict"] == "skipped"}
    recursive = ("gpuRecursiveReduce", "gpuRecursiveReduceNosync", "gpuRecursiveReduce2")
    assert skipped.keys() == {find_variant(FAMILIES, name, {}).name for name in recursive}
    assert all("it is proven on a GPU only" in reason for reason in skipped.values())
    assert "reduction_sum_f32__nested_tpb512_sync and 2 more skipped:" in shown.out


@pytest.mark.usefixtures("home")
@pytest.mark.parametrize(("few", "apart"), [(1, False), (0, True)])
def test_many_are_compiled_in_another_process(few: int, apart: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """NVRTC takes Ctrl-C for itself while it compiles."""
    here: list[str] = []

    def refuse(_: object, name: str, *_text: str) -> None:
        here.append(name)
        raise CompileError(name, "not here", Path("not.cu"))

    monkeypatch.setattr("gen.cli.prove.MAX_COMPILED_HERE", few)
    monkeypatch.setattr("gen.toolchain.nvrtc.Nvrtc._compile", refuse)
    monkeypatch.setattr(Host, "verdicts", lambda _, variants: (Verdict(made, "proven", 1) for made in variants))
    ended = run("prove", "reduceShfl")
    assert bool(here) is not apart
    assert ended.status == (0 if apart else 1)
    assert ("failed: compile error" in ended.out) is not apart


def test_prove_takes_every_algorithm_if_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    def prove(_: Host, variants: Any) -> Iterator[Verdict]:
        return (Verdict(made, "proven", 1) for made in variants)

    monkeypatch.setattr(Host, "verdicts", prove)
    monkeypatch.setattr("gen.cli.prove.compiler_at_hand", lambda _: None)
    base, everything = (run("prove", *options, "--json").data for options in ((), ("--all",)))
    assert everything["proven"] == len(everything["variants"]) > base["proven"]
    assert {one["name"] for one in base["variants"]} < {one["name"] for one in everything["variants"]}


def test_prove_prints_a_failure_whole_keeps_it_and_ends_with_1(oracle: OracleRunner, home: Path) -> None:
    bad = find_variant(FAMILIES, "transposeSmemPad", {}).name
    oracle.wrong = (bad,)
    shown = run("prove", "transpose")
    assert shown.status == 1
    assert f"{bad} failed:" in shown.out
    assert "rows" in shown.out.partition(f"{bad} failed:")[2]
    data = run("prove", "transpose", "--json")
    assert data.status == 1
    failed = [(one["name"], one["kind"]) for one in data.data["variants"] if one["verdict"] == "failed"]
    assert failed == [(bad, "wrong result")]
    assert "failed: wrong result" in shown.out
    lines = (home / "failed_cases.jsonl").read_text().splitlines()
    assert [json.loads(line)["variant"] for line in lines] == [bad]
    assert f"1 failing case is kept in {home / 'failed_cases.jsonl'}" in " ".join(shown.err.split())
    assert run("prove", "transposeSmem").status == 0


@pytest.mark.exhaustive
@pytest.mark.usefixtures("oracle")
def test_prove_takes_specs_of_no_catalogue() -> None:
    for name in ("transpose_0312_b16", gen.remember(gen.stencil([1.0, 2.0, 1.0], word="mine"))):
        assert name not in [f"{family.name}_{spec.label}" for family in FAMILIES for spec in family.catalogue]
        data = run("prove", name, "--json").data
        assert data["failed"] == 0
        assert data["proven"] > 50
        assert {one["name"].partition("__")[0] for one in data["variants"]} == {name}


def test_prove_runs_the_emitted_text() -> None:
    content = run("prove", "reduceShfl", "--seed", "5", "--json", "--home", CHECKOUT / "out").data
    assert content["seed"] == 5
    (one,) = content["variants"]
    assert one["verdict"] == "proven"
    assert one["cases"] >= 30


def test_without_gxx_it_is_said_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    shown = run("prove", "reduceShfl")
    assert shown.status == 1
    assert "g++" in shown.err
    assert "nstall" in shown.err


@pytest.mark.usefixtures("oracle")
def test_a_family_from_outside_is_listed_generated_and_proven(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    code = "from gen.families.reduction import Reduction\nclass Other(Reduction):\n    name = 'other'\n    named = ()\n"
    (tmp_path / "an_outside_family.py").write_text(code)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    outside = ("--family", "an_outside_family:Other")
    assert "other" in [family["name"] for family in run(*outside, "list", "--json").data["families"]]
    assert any(name.startswith("other_sum_f32__") for name in run(*outside, "generate", "--json").data["changed"])
    assert run(*outside, "prove", "other_sum_f32").status == 0


@pytest.fixture
def built(home: Path, cache: Path) -> Path:
    """The folder of results, with all that tests have built for the CPU."""
    home.mkdir()
    cache.mkdir(parents=True, exist_ok=True)
    (home / ".cache").symlink_to(cache)
    return home


NAIVE = find_variant(FAMILIES, "transposeNaiveRow", {})


def spoiled(made: Variant) -> tuple[str, int]:
    """What gen writes for `naive` with an index that leaves the last row, and the line of the access."""
    text = render(made)
    assert "col < cols" in text
    lines = text.replace("col < cols", "col <= cols").splitlines()
    return "\n".join(lines) + "\n", next(n for n, line in enumerate(lines, start=1) if "out[" in line)


def test_a_name_also_proves_a_file_of_out_that_holds_other_text(built: Path) -> None:
    (file := built / f"{NAIVE.name}.cu").write_text(render(NAIVE))
    same = run("prove", NAIVE.name, "--json")
    assert (same.status, len(same.data["variants"]), same.err) == (0, 1, "")
    text, line = spoiled(NAIVE)
    file.write_text(text)
    changed = run("prove", NAIVE.name, "--json")
    assert changed.status == 1
    fresh, found = changed.data["variants"]
    assert (fresh["verdict"], fresh["file"]) == ("proven", None)
    assert (found["name"], found["verdict"], found["file"]) == (NAIVE.name, "failed", str(file))
    assert found["kind"].startswith("out-of-bounds")
    assert f"{file}:{line}: `{text.splitlines()[line - 1].strip()}`" in found["reason"]
    assert f"{file} holds other text than gen writes for {NAIVE.name}" in changed.err
    assert f"gen generate --home {built} writes such files anew" in " ".join(changed.err.split())


def test_a_file_is_proven_as_it_stands_wherever_it_is(built: Path) -> None:
    folder = built / "mine"
    folder.mkdir()
    text, line = spoiled(NAIVE)
    (folder / "wrong.cu").write_text(text)
    (folder / "right.cu").write_text(render(NAIVE).replace("\n", "\r\n"))
    for targets in ((folder,), (folder / "right.cu", folder / "wrong.cu", folder / "right.cu")):
        ended = run("prove", *targets)
        assert ended.status == 1
        assert "1 proven, 1 failed, 0 skipped" in ended.out
        assert f"{folder / 'wrong.cu'}:{line}" in ended.out
        assert f"{folder / 'right.cu'}" in ended.out
    assert run("prove", folder / "right.cu").status == 0


def test_a_file_that_only_the_compiler_of_gpus_refuses_has_failed(built: Path) -> None:
    (file := built / "mine.cu").write_text(
        render(NAIVE).replace("if (row >= rows)", "if (__builtin_ia32_rdtsc() == 0 || row >= rows)")
    )
    (found,) = run("prove", file, "--json").data["variants"]
    assert (found["verdict"], found["kind"]) == ("failed", "compile error")
    assert "__builtin_ia32_rdtsc" in found["reason"]
    assert found["reason"].endswith(f"in the text of {file}")


def test_a_file_that_the_compiler_refuses_is_named_by_its_path_and_line(built: Path) -> None:
    (file := built / "mine.cu").write_text(render(NAIVE).replace("col < cols", "col < colls"))
    ended = run("prove", file)
    assert ended.status == 1
    assert f"{file}:" in ended.out
    assert "colls" in ended.out


@pytest.mark.usefixtures("oracle")
@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("//", "", "must begin with the header of a kernel that gen wrote"),
        ("Config:", "Configs:", "must begin with the header of a kernel that gen wrote"),
        ('"dtype": "b32"', '"dtype": "b64"', "must have the spec in its header that its name says"),
        ('"unroll": 1', '"unroll": 2', "must have the config in its header that its name says"),
        ("{", "(", "must have a spec and a config in JSON in its header"),
        ("transpose_10_b32", "transpose_10_b33", "must hold a variant of the families at hand"),
        ("transpose_10_b32", "turn_10_b32", "must hold a variant of the families at hand"),
        ("(in, out, rows, cols", "(in, out, cols, rows", "must be launched as gen launches"),
        ("Launch:", "Lunch:", "must be launched as gen launches"),
    ],
)
def test_a_file_that_no_variant_is_known_by_is_refused(old: str, new: str, said: str, home: Path) -> None:
    home.mkdir()
    (file := home / f"{NAIVE.name}.cu").write_text(render(NAIVE).replace(old, new))
    ended = run("prove", file)
    assert ended.status == 2
    assert said in ended.err
    assert str(file) in ended.err
    ended = run("prove", NAIVE.name)
    assert ended.status == 1
    assert "1 proven, 1 failed, 0 skipped" in ended.out
    assert "failed: other header" in ended.out
    assert said in " ".join(ended.out.split())
    assert f"{file} holds other text" in ended.err


def test_a_file_of_every_algorithm_is_read_as_gen_wrote_it(tmp_path: Path) -> None:
    """Launches of some have comments between their lines: cooperative ones, and those of many steps."""
    read = set()
    for family in FAMILIES:
        for algorithm in family.algorithms.values():
            configs = ((spec, one) for spec in family.catalogue for one in algorithm.config.space())
            found = next(((spec, one) for spec, one in configs if illegal(algorithm, spec, one) is None), None)
            if found is None:  # of no spec in a catalogue
                continue
            made = variant(family, found[0], algorithm, found[1])
            (file := tmp_path / f"{made.name}.cu").write_text(render(made))
            assert read_kernel(FAMILIES, file).variant.name == made.name
            read.add(algorithm.name)
    assert read > {"persistent", "temporal", "cluster"}


def test_functions_for_the_host_are_those_that_gen_writes_however_they_are_wrapped(built: Path) -> None:
    whole, end = render(NAIVE), "  return cudaGetLastError();"
    (file := built / "mine.cu").write_text(whole.replace(end, "\n  return  // at last\n cudaGetLastError( ) ;"))
    assert run("prove", file).status == 0
    file.write_text(whole.partition(HOST_ONLY)[0] + f"}}  // namespace {NAIVE.name}\n")
    assert run("prove", file).status == 0
    for old, new in ((end, f"  std::swap(rows, cols);\n{end}"), ("(rows + 7) / 8", "(rows + 8) / 8"), (end, "")):
        kernels, guard, functions = whole.partition(HOST_ONLY)
        assert old in functions
        file.write_text(kernels + guard + functions.replace(old, new, 1))
        ended = run("prove", file)
        assert ended.status == 2
        assert f"{file} must have the functions for the host that gen writes for its kernels" in ended.err
        assert "Change the kernels alone" in ended.err


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("none.cu", "none.cu is no file or folder. gen list shows"),
        ("empty/", "must hold .cu files"),
        ("", "must be a family, a variant's full name"),
        ("notes.md", "notes.md must begin with the header of a kernel that gen wrote"),
        ("bytes.cu", "cannot be read as text"),
    ],
)
def test_a_path_without_a_kernel_is_named(
    name: str, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("empty").mkdir()
    Path("notes.md").write_text("# Notes\n")
    Path("bytes.cu").write_bytes(b"\xff\xfe")
    ended = run("prove", name)
    assert ended.status in (1, 2)
    assert said in ended.err


@pytest.mark.usefixtures("oracle")
def test_several_names_are_proven_each_variant_once() -> None:
    names = [one["name"] for one in run("prove", "transposeNaiveRow", "reduceShfl", "--json").data["variants"]]
    assert names == [find_variant(FAMILIES, name, {}).name for name in ("transposeNaiveRow", "reduceShfl")]
    assert [one["name"] for one in run("prove", names[0], "transposeNaiveRow", "--json").data["variants"]] == names[:1]
    chosen = run("show", "reduction_sum_f32", "--json").data["choices"][0]
    numbered = run("prove", f"reduction_sum_f32:{chosen['number']}", "--json").data["variants"]
    assert [one["name"] for one in numbered] == [chosen["variant"]]


@pytest.mark.usefixtures("built")
def test_the_text_that_failed_is_kept_where_the_reason_says(monkeypatch: pytest.MonkeyPatch) -> None:
    text, line = spoiled(NAIVE)
    monkeypatch.setattr("gen.proof.verdicts.render", lambda _: text)
    (found,) = run("prove", NAIVE.name, "--json").data["variants"]
    assert f"{NAIVE.name}.cu:{line}: `" in found["reason"]
    assert Path(found["reason"].rpartition("in the text of ")[2]).read_text() == text


@pytest.mark.parametrize("label", ["../../evil", "/evil", "na\u00efve", 'a"b', "a b", "a\nb", "%s"])
def test_a_label_that_is_no_name_of_a_kernel_is_refused(
    label: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.delitem(sys.modules, "a_family_of_odd_labels", raising=False)
    Path("a_family_of_odd_labels.py").write_text(
        "from gen.families.reduction import Reduction, ReductionSpec\n"
        f"class Odd(ReductionSpec):\n    label = {label!r}\n"
        "class Other(Reduction):\n    name, named, samples, catalogue = 'other', (), {}, (Odd(),)\n"
    )
    before = sorted(tmp_path.rglob("*"))
    for command in (("generate", "--home", "made"), ("prove", "other", "--home", "made")):
        ended = run("--family", "a_family_of_odd_labels:Other", *command)
        assert ended.status == 2
        assert "must be made of letters from a to z, digits and underscores" in ended.err
    assert [path for path in sorted(tmp_path.rglob("*")) if "__pycache__" not in str(path)] == before
