"""Rendering is strict, pure, and writes what people and compilers can read."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import textwrap
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import clang_format  # type: ignore[import-untyped]
import jinja2
import pytest

from gen.dtypes import LoadModifier
from gen.emit.folder import all_of_catalogue
from gen.emit.render import MARK, WIDTH, _wrap, declared_inputs, environment_of, render, sources
from gen.errors import TemplateError
from gen.families import FAMILIES
from gen.families.base import Family, Variant
from gen.families.config import tunable
from gen.families.names import base_variants, find_variant, named_variant, search_space, variant
from gen.families.reduction import Grid, GridConfig, Reduction, ReductionSpec
from gen.families.reduction.algorithms.common import Combine
from gen.families.transpose import Tiled, TiledConfig, Transpose, TransposeSpec
from gen.paths import templates_root

CHECKOUT = Path(__file__).parents[2]
ONE = base_variants(FAMILIES[0], FAMILIES[0].catalogue[0])[0]
FEW = [made for family in FAMILIES for spec in family.catalogue for made in base_variants(family, spec)]
FEW += [named_variant(family, named) for family in FAMILIES for named in family.named]


@pytest.fixture(scope="module")
def texts() -> dict[str, str]:
    """The text of every legal variant by name."""
    return {made.name: render(made) for made in all_of_catalogue(FAMILIES)}


@pytest.fixture(scope="module")
def formed_alike(texts: Mapping[str, str]) -> tuple[str, ...]:
    """A variant of each form: a text below its header, whatever its own name and digits are."""
    found: dict[str, str] = {}
    for name, text in texts.items():
        found.setdefault(re.sub(r"\d", "0", text.partition(MARK)[2].replace(name, "")), name)
    return tuple(found.values())


def fake(folder: Path, template: str, inputs: Mapping[str, object], **partials: str) -> Variant:
    """A variant of a family with templates of its own."""
    (folder / "fake").mkdir(exist_ok=True)
    (folder / "fake" / "any.cu.jinja").write_text(template)
    for name, text in partials.items():
        (folder / f"{name}.cu.jinja").write_text(text)

    class Any_(Grid):  # noqa: N801
        template = "fake/any.cu.jinja"

        def inputs(self, spec: ReductionSpec, config: GridConfig) -> Mapping[str, object]:
            return inputs

    class Fake(Reduction):
        templates = folder

    return variant(Fake(), ReductionSpec(), Any_(), GridConfig())


def body(text: str) -> str:
    """What stands in its namespace, but for functions of the host."""
    found = re.search(r"\nnamespace \w+ \{\n\n(.*?\n)\n(?:#if|\}  // namespace)", text, re.DOTALL)
    assert found is not None
    return found[1]


def header(text: str) -> dict[str, str]:
    """The labelled parts of a header, unwrapped."""
    found: dict[str, str] = {}
    label = ""
    for line in text.partition(MARK)[0].splitlines():
        words = line.removeprefix("//").strip()
        match = re.match(r"(Let|Launch|Scratch|Spec|Config|Template): +", words)
        if match:
            label = match.group(1)
            words = words[match.end() :]
            found[label] = found[label] + "; " + words if label in found else words
        elif label and words:
            found[label] += " " + words
    return found


def refused(made: Variant) -> str:
    with pytest.raises(TemplateError) as caught:
        render(made)
    return str(caught.value)


def test_a_family_from_outside_renders_its_own_templates(tmp_path: Path) -> None:
    made = fake(
        tmp_path,
        "{# inputs: name, count #}\n"
        '{% from "_memory.cu.jinja" import load %}\n{% from "_own.cu.jinja" import twice %}\n'
        'void {{ name }}() { {{ twice(count) }}; {{ load("__ldcg", "in", "i") }}; }\n',
        {"count": 21},
        _own="{# inputs: #}\n{% macro twice(number) %}{{ number * 2 }}{% endmacro %}\n",
    )
    assert body(render(made)) == f"void {made.name}() {{ 42; __ldcg(&in[i]); }}\n"
    environment = environment_of(made.family)
    assert sources(environment, "fake/any.cu.jinja") == ("_memory.cu.jinja", "_own.cu.jinja", "fake/any.cu.jinja")


def test_a_template_reads_fields_of_the_config_by_their_names(tmp_path: Path) -> None:
    template = (
        "{# inputs: name, unroll, load_modifier, combine #}\n"
        "{{ name }} {{ unroll }} {{ load_modifier }} {{ combine }}\n"
    )
    made = fake(tmp_path, template, {})
    config = GridConfig(unroll=8, load_modifier=LoadModifier.CG, combine=Combine.TICKET)
    made = replace(made, config=config)
    assert body(render(made)) == f"{made.name} 8 __ldcg ticket\n"


def test_what_is_derived_for_a_template_goes_before_a_field_of_the_same_name(tmp_path: Path) -> None:
    made = fake(tmp_path, "{# inputs: name, unroll #}\n{{ name }} {{ unroll }}\n", {"unroll": "derived"})
    assert body(render(made)) == f"{made.name} derived\n"


@pytest.mark.parametrize(
    ("template", "inputs", "says"),
    [
        ("{{ name }}\n", {}, "fake/any.cu.jinja must begin with {# inputs: ... #} (got '{{ name }}')"),
        ("", {}, "fake/any.cu.jinja must begin with {# inputs: ... #} (got '')"),
        ("{# inputs: name #}\n{{ name }}{{ unrol }}\n", {}, "fake/any.cu.jinja:2: unrol is read, but not declared"),
        ("{# inputs: name, count #}\n{{ name }}\n{{ cuont }}\n", {"count": 1},
         "fake/any.cu.jinja:3: cuont is read, but not declared. Did you mean count"),
        ('{# inputs: name #}\n{% from "../_own.cu.jinja" import x %}{{ x(name) }}\n', {},
         "fake/any.cu.jinja imports a partial that is not there (got ../_own.cu.jinja)"),
        ("{# inputs: name, u #}\n{{ name }}\n", {"u": 1}, "fake/any.cu.jinja: u is declared, but never read"),
        ("{# inputs: name #}\n{{ name }}\n", {"u": 1}, "fake/any.cu.jinja: u is given to it, but not declared"),
        ("{# inputs: name, u #}\n{{ name }}{{ u }}\n", {}, "fake/any.cu.jinja: u is declared, but not given to it"),
        ("{# inputs: #}\n", {}, "fake/any.cu.jinja: name is given to it, but not declared"),
        ("{# inputs: name #}\n{{ name.absent }}\n", {}, "fake/any.cu.jinja reads what is not defined"),
        ("{# inputs: name #}\n{{ {4: 1}[8] }}{{ name }}\n", {}, "fake/any.cu.jinja reads what is not defined"),
        ('{# inputs: name #}\n{% from "_memory.cu.jinja" import lod %}{{ lod(name) }}\n', {},
         "fake/any.cu.jinja reads what is not defined"),
        ('{# inputs: name #}\n{% from "_absent.cu.jinja" import x %}{{ x(name) }}\n', {},
         "fake/any.cu.jinja imports a partial that is not there (got _absent.cu.jinja)"),
        ("{# inputs: name #}\n{% include name %}\n", {}, "fake/any.cu.jinja must import partials by a fixed name"),
        ("{# inputs: name #}\n{{ name }\n", {}, "fake/any.cu.jinja:2 is no Jinja"),
        ("{# inputs: name #}\n{% if name %}\n", {}, "fake/any.cu.jinja:2 is no Jinja"),
        ("{# inputs: name #}\n{{ name | absent_filter }}\n", {}, "fake/any.cu.jinja:2 is no Jinja"),
        ("{# inputs: name, u #}\n{{ name }}{{ 8 // u }}\n", {"u": 0},
         "fake/any.cu.jinja cannot be rendered (got ZeroDivisionError: "),
        ("{# inputs: name, u #}\n{{ name }}{{ u + 1 }}\n", {"u": "1"},
         "fake/any.cu.jinja cannot be rendered (got TypeError: "),
    ],
)  # fmt: skip
def test_a_template_that_reads_other_than_its_inputs_is_refused_by_name(
    tmp_path: Path, template: str, inputs: Mapping[str, object], says: str
) -> None:
    assert says in refused(fake(tmp_path, template, inputs))


@pytest.mark.parametrize("value", [0.5, 1.0, None, True, False, [1], (1, 2), {"a": 1}, object, b"bytes", 1j])
def test_a_value_that_python_spells_in_its_own_way_is_not_printed(tmp_path: Path, value: object) -> None:
    said = refused(fake(tmp_path, "{# inputs: name, value #}\n{{ name }}{{ value }}\n", {"value": value}))
    assert said.startswith("fake/any.cu.jinja may print text and integers only")
    assert repr(value) in said
    assert type(value).__name__ in said


@pytest.mark.parametrize("printed", ["0.5", "none", "true", "[1]", "(1, 2)", "{1: 2}", "1 == 1", "3 / 2"])
def test_what_a_template_itself_holds_is_printed_as_strictly(tmp_path: Path, printed: str) -> None:
    said = refused(fake(tmp_path, f"{{# inputs: name #}}\n{{{{ name }}}}{{{{ {printed} }}}}\n", {}))
    assert said.startswith("fake/any.cu.jinja may print text and integers only")


def test_a_value_may_decide_without_being_printed(tmp_path: Path) -> None:
    made = fake(tmp_path, "{# inputs: name, on #}\n{{ name if on else 0 }}\n", {"on": True})
    assert body(render(made)) == made.name + "\n"


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("{{ hidden }}", "_own.cu.jinja:2: hidden is read, but neither set there nor given to its macro"),
        ("{{ name }}", "_own.cu.jinja:2: name is read, but neither set there nor given to its macro"),
        ("{{ 0.5 }}", "fake/any.cu.jinja may print text and integers only"),
    ],
)
def test_a_partial_sees_nothing_but_its_parameters(tmp_path: Path, text: str, says: str) -> None:
    template = '{# inputs: name #}\n{% from "_own.cu.jinja" import show %}\n{{ name }}{{ show() }}\n'
    partial = f"{{# inputs: #}}\n{{% macro show() %}}{text}{{% endmacro %}}\n"
    assert says in refused(fake(tmp_path, template, {}, _own=partial))


@pytest.mark.parametrize("template", ["../secret.cu.jinja", "fake/../../secret.cu.jinja"])
def test_no_template_lies_above_the_folders_of_templates(
    tmp_path: Path, template: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder := tmp_path / "templates").mkdir()
    made = fake(folder, "{# inputs: name #}\n{{ name }}\n", {})
    (tmp_path / "secret.cu.jinja").write_text("{# inputs: name #}\n{{ name }} secret\n")
    monkeypatch.setattr(type(made.algorithm), "template", template)
    assert refused(made) == f"{template} is no template of its family, nor one that all share"


def test_what_every_template_and_partial_declares_is_what_it_reads() -> None:
    root = Path(str(templates_root()))
    names = sorted(str(path.relative_to(root)) for path in root.rglob("*.cu.jinja"))
    used = {
        name
        for family in FAMILIES
        for algorithm in family.algorithms.values()
        for name in sources(environment_of(family), algorithm.template)
    }
    assert set(names) == used | {"_file.cu.jinja"}
    for name in names:
        assert declared_inputs(environment_of(FAMILIES[0]), name) is not None


def test_a_text_is_parsed_once_for_all_that_is_asked_of_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    parsed: list[str | None] = []

    def parse(self: jinja2.Environment, source: str, name: str | None, filename: str | None) -> jinja2.nodes.Template:
        parsed.append(name)
        return jinja2.parser.Parser(self, source, name, filename).parse()

    render(find_variant(FAMILIES, "reduceShfl", {}))  # what all texts share is parsed before
    monkeypatch.setattr(jinja2.Environment, "_parse", parse)
    made = fake(
        tmp_path,
        '{# inputs: name #}\n{% from "_own.cu.jinja" import once %}\n{{ name }}{{ once() }}\n',
        {},
        _own="{# inputs: #}\n{% macro once() %}parsed once{% endmacro %}\n",
    )
    assert body(render(made)) == f"{made.name}parsed once\n"
    assert render(variant(type(made.family)(), made.spec, made.algorithm, made.config)) == render(made)
    assert sorted(filter(None, parsed)) == ["_own.cu.jinja", "fake/any.cu.jinja"]


def test_the_header_names_template_spec_and_config(texts: Mapping[str, str]) -> None:
    for made in all_of_catalogue(FAMILIES):
        text = texts[made.name]
        parts = header(text)
        assert text.startswith(f"// {made.name}\n//\n")
        assert made.family.from_json(json.loads(parts["Spec"])) == made.spec
        assert made.algorithm.config.from_json(json.loads(parts["Config"])) == made.config
        assert re.fullmatch(
            re.escape(made.algorithm.template) + r", with its partials sha256 [0-9a-f]{16}", parts["Template"]
        )


def test_the_header_states_every_launch_and_all_scratch() -> None:
    parts = header(render(named_variant(FAMILIES[0], FAMILIES[0].named[0])))
    copy, reduce, finish = parts["Launch"].split("; ")
    assert copy == "..copy <<<min((n + 255) / 256, multiprocessors * 8), 256>>>(in, work, n)".replace("..", ".._")
    assert reduce == "<<<count, 128>>>(work, partials, n)"
    assert finish == ".._finish <<<1, 128>>>(partials, out, count)"
    assert parts["Let"] == "count = max((n + 127) / 128, 1)"
    assert parts["Scratch"] == "work, n * 4 bytes; partials, count * 4 bytes"
    made = find_variant(FAMILIES, "reduction_sum_f32__grid_tpb256_u4_v16_bpm2", {})
    assert header(render(made))["Scratch"].endswith("ticket, min(blocks - 1, 1) * 4 bytes, 0 before the first launch")


def test_the_header_names_tiles_once_and_says_what_a_config_does() -> None:
    window = header(render(find_variant(FAMILIES, "transpose_10_b32__window_tile_t64_c64_w16_a32_ocol", {})))
    assert window["Let"].startswith("tiles_down = (rows + 7 + 63) / 64; tiles_across = (cols + 63) / 64; ")
    assert window["Launch"].startswith("<<<tiles_down * tiles_across, dim3(32, 16, 1)>>>(")
    assert "+ 63" not in window["Launch"]
    for tag, word, other in (("_shared", "shared memory", "shuffles"), ("", "shuffles", "shared memory")):
        text = render(find_variant(FAMILIES, f"reduction_sum_f32__single_tpb256_u4_v16{tag}", {}))
        said = " ".join(line.removeprefix("//").strip() for line in text.partition("// Launch:")[0].splitlines())
        assert f"what they know by {word}." in said
        assert other not in said


def test_a_comment_stands_right_before_the_function_it_tells_of(texts: Mapping[str, str]) -> None:
    for text in texts.values():
        assert not re.search(r"^//[^\n]*\n(?:static_assert|constexpr)[^\n]*\n__device__", text, re.MULTILINE)


def test_the_digest_changes_with_a_partial(tmp_path: Path) -> None:
    template = '{# inputs: name #}\n{% from "_own.cu.jinja" import show %}\n{{ name }}{{ show() }}\n'
    digests = []
    for number, shown in enumerate((1, 2, 1)):
        folder = tmp_path / str(number)
        folder.mkdir()
        partial = f"{{# inputs: #}}\n{{% macro show() %}}{shown}{{% endmacro %}}\n"
        digests.append(header(render(fake(folder, template, {}, _own=partial)))["Template"])
    assert digests[0] == digests[2] != digests[1]


def test_every_kernel_of_the_plan_is_in_the_text_and_no_other(texts: Mapping[str, str]) -> None:
    kernel = re.compile(
        r'extern "C" __global__ void\s+(?:__cluster_dims__\([\w, ]+\)\s+)?(?:__launch_bounds__\([\w, ]+\)\s+)?(\w+)\('
    )
    for made in all_of_catalogue(FAMILIES):
        entries = {made.name + launch.entry for launch in made.plan.launches}
        found = kernel.findall(texts[made.name])
        assert set(found) == entries
        assert len(found) == len(entries) == texts[made.name].count("__global__")


def test_every_variant_asserts_what_it_stands_on(texts: Mapping[str, str]) -> None:
    for text in texts.values():
        assert "static_assert(" in text
        assert text.index("constexpr int k") < text.index("static_assert(") < text.index("__global__")


def test_every_text_stands_alone_and_is_plain(texts: Mapping[str, str]) -> None:
    for name, text in texts.items():
        includes = set(re.findall(r"#\s*include\s*(\S+)", text))
        assert includes <= {"<cuda_fp16.h>", "<cuda_bf16.h>"}, name
        assert text.isascii()
        assert "\t" not in text
        assert "\r" not in text
        assert "{%" not in text
        assert "{#" not in text
        assert text.endswith(f"}}  // namespace {name}\n")
        assert not text.endswith("\n\n")
        assert all(line == line.rstrip() for line in text.splitlines())


def test_lines_are_under_a_hundred_columns_but_for_the_name(texts: Mapping[str, str]) -> None:
    assert WIDTH < 100
    too_long = [
        line for name, text in texts.items() for line in text.splitlines() if len(line) >= 100 and name not in line
    ]
    assert too_long == []


def test_no_date_host_or_path_is_in_any_text(texts: Mapping[str, str], formed_alike: tuple[str, ...]) -> None:
    host = os.uname().nodename
    for name in formed_alike:  # a date, a host and a path would stand in all texts of a form
        text = texts[name]
        assert not re.search(r"\b(19|20)\d\d-\d\d|\b\d\d:\d\d", text), name
        assert not re.search(r"(?<![\w/])/\w", text), name  # an absolute path
        assert str(CHECKOUT) not in text
        assert not re.search(rf"\b{re.escape(host)}\b", text) or len(host) < 6


def test_parameters_that_are_off_are_not_in_the_text(texts: Mapping[str, str]) -> None:
    for made in all_of_catalogue(FAMILIES):
        header = " ".join(texts[made.name].partition(MARK)[0].replace("//", "").split())
        for parameter in made.config.parameters():
            off = parameter.off is not None and getattr(made.config, parameter.field) == parameter.off
            assert (f'"{parameter.field}": ' in header) != off


def test_a_parameter_added_at_off_changes_no_text() -> None:
    @dataclass(frozen=True, kw_only=True)
    class LaterConfig(TiledConfig):
        later: int = tunable("z", (0, 8), base=0, off=0, help="added later")

    class Later(Tiled):
        config = LaterConfig

    family, spec, later = Transpose(), TransposeSpec(), Later()
    for old in search_space(Tiled(), spec):
        new = variant(family, spec, later, LaterConfig.from_json(old.to_json()))
        assert render(new) == render(variant(family, spec, "tiled", old))


def test_texts_are_the_same_bytes_under_every_hash_seed(tmp_path: Path) -> None:
    code = (
        "import sys; from gen.emit.render import render; from gen.families import FAMILIES\n"
        "from gen.families.names import find_variant\n"
        "for name in sys.stdin.read().split():\n"
        "    sys.stdout.write(render(find_variant(FAMILIES, name, {})))\n"
    )
    runs = [
        subprocess.Popen(
            [sys.executable, "-c", code],
            cwd=tmp_path,
            env={**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": str(CHECKOUT), "TZ": zone},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for seed, zone in (("1", "UTC"), ("4242", "Asia/Tokyo"))
    ]
    names = "\n".join(made.name for made in FEW)
    here = "".join(render(made) for made in FEW)
    assert [run.communicate(names)[0] for run in runs] == [here, here]
    assert [run.returncode for run in runs] == [0, 0]


@pytest.mark.parametrize("family", FAMILIES, ids=lambda family: family.name)
def test_every_text_is_a_fixed_point_of_clang_format(
    family: Family[Any], texts: Mapping[str, str], formed_alike: tuple[str, ...], tmp_path: Path
) -> None:
    program = shutil.which("clang-format", path=Path(sys.executable).parent) or clang_format.get_executable(
        "clang-format"
    )
    shutil.copy(CHECKOUT / "out" / ".clang-format", tmp_path)
    files = [f"{name}.cu" for name in formed_alike if name.startswith(family.name + "_")]
    for file in files:
        (tmp_path / file).write_text(texts[file.removesuffix(".cu")])
    done = subprocess.run(
        [program, "--dry-run", "-Werror", "--style=file", *files],
        cwd=tmp_path, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert files
    assert (done.returncode, done.stderr[:3000]) == (0, "")


def test_clang_format_would_say_otherwise(tmp_path: Path) -> None:
    program = shutil.which("clang-format", path=Path(sys.executable).parent) or clang_format.get_executable(
        "clang-format"
    )
    shutil.copy(CHECKOUT / "out" / ".clang-format", tmp_path)
    (tmp_path / "bad.cu").write_text(render(ONE).replace("  __shared__", " __shared__"))
    done = subprocess.run(
        [program, "--dry-run", "-Werror", "--style=file", "bad.cu"], cwd=tmp_path, capture_output=True, check=False
    )
    assert done.returncode == 1


@pytest.mark.parametrize("length", [0, 5, 85, 86, 87, 200])
@pytest.mark.parametrize("text", ["a" * 300, "word " * 60, "two  blanks " * 25, " before, and after ", "a\ttab"])
def test_a_line_that_fits_is_what_wrapping_gives(text: str, length: int) -> None:
    wrapped = textwrap.wrap(
        text[:length], WIDTH - 3, initial_indent="Launch:   ", subsequent_indent=" " * 10, break_long_words=False,
        break_on_hyphens=False,
    )  # fmt: skip
    assert _wrap("Launch:   ", text[:length]) == wrapped
