"""Every part of an emitted text runs in some case of its proof: a part that no case reaches is proven in name only.

A mark is called at the beginning of each block of the text, and before each statement that a condition or a loop
guards. Of marks that g++ leaves out, since no sizes lead there, nothing is asked.
"""

from __future__ import annotations

import ctypes
import re
import subprocess
from pathlib import Path

import pytest

from gen.arch import Limits
from gen.emit.launch import HOST_ONLY
from gen.emit.render import render
from gen.families import FAMILIES
from gen.families.names import find_variant
from gen.proof.cases import cases_of, edge_cases
from gen.proof.host import HostRunner
from gen.proof.prover import prove

MARKS = 4096  # at most in one text, which has as many lines
GUARDED = re.compile(r"^\s+(?:\} else )?(?:if|for|while) \(.*;$")
NO_CODE = re.compile(r"\b(?:struct|enum|union|class|switch)\b|= \{$|\[=\]")


def marked(text: str) -> str:
    """A text with marks, numbered by its lines."""
    body, mark, rest = text.partition(HOST_ONLY)
    lines, depth, numbers = [], 0, []
    for number, line in enumerate(body.splitlines()):
        code = line.partition("//")[0].rstrip()
        inside = depth
        depth += code.count("{") - code.count("}")
        call = f"gen_mark_{number}();"
        if inside > 1 and GUARDED.match(code) and "{" not in code and (end := _closed(code)):
            lines.append(f"{code[:end]} {{ {call} {code[end:]} }}")
        elif inside and depth > 1 and code.endswith("{") and not NO_CODE.search(code):
            lines += [line, call]
        else:
            lines.append(line)
            continue
        numbers.append(number)
    declared = "".join(f"__attribute__((weak)) void gen_mark_{number}();" for number in numbers)
    first = next(place for place, line in enumerate(lines) if line.startswith("namespace "))
    lines[first] = f'extern "C" {{ {declared} }}\n{lines[first]}'
    return "\n".join(lines) + "\n" + mark + rest


def _closed(code: str) -> int:
    """The place behind the condition of a guarded statement; 0 where that goes on in the next line."""
    depth = 0
    for place in range(code.index("("), len(code)):
        depth += {"(": 1, ")": -1}.get(code[place], 0)
        if not depth:
            return place + 1
    return 0


@pytest.fixture(scope="module")
def reached(tmp_path_factory: pytest.TempPathFactory) -> ctypes.Array[ctypes.c_char]:
    """A byte for each mark, which is 1 once the mark has been called."""
    folder = tmp_path_factory.mktemp("marks")
    source = "".join(f"void gen_mark_{number}(void) {{ gen_marks[{number}] = 1; }}\n" for number in range(MARKS))
    (folder / "marks.c").write_text(f"char gen_marks[{MARKS}];\n{source}")
    subprocess.run(["gcc", "-shared", "-fPIC", "-o", "marks.so", "marks.c"], cwd=folder, check=True)
    library = ctypes.CDLL(str(folder / "marks.so"), mode=ctypes.RTLD_GLOBAL)
    return (ctypes.c_char * MARKS).in_dll(library, "gen_marks")


# Of algorithms that choose a way by how their arrays lie, or by how many blocks a result has.
VARIANTS = (
    "transpose_10_b8__skinny_cols_b8192_tpb256_v16",
    "transpose_021_b8__skinny_rows_b16384_tpb512",
    "transpose_021_b16__skinny_rows_b16384_tpb256",
    "transpose_10_b8__small_b8192_tpb256",
    "reduction_argmin_f16__strided_tpb64_u4_bpm4_secondpass",
    "reduction_sum_f32_axis1__flat_columns_a2_tpb128_c32_u4",
)


@pytest.mark.exhaustive
@pytest.mark.parametrize("name", VARIANTS)
def test_every_line_runs_in_some_case(
    name: str, reached: ctypes.Array[ctypes.c_char], tmp_path: Path, cache: Path
) -> None:
    made = find_variant(FAMILIES, name, {})
    text = render(made)
    runner = HostRunner(Limits.of("sm_90"), cache=tmp_path, text=lambda _: marked(text))
    for kept in ("runtime", "headers"):  # which take g++ seconds to build
        if (cache / kept).is_dir():
            (tmp_path / kept).symlink_to(cache / kept)
    ctypes.memset(reached, 0, MARKS)
    (proof,) = prove(runner, [made], [*edge_cases(made), *cases_of(made.family, made.spec)])
    assert proof.failure is None
    (built,) = (tmp_path / "kernels").rglob("*.so")
    listed = subprocess.run(["nm", "-D", "--undefined-only", built], capture_output=True, text=True, check=True).stdout
    asked = sorted(int(number) for number in re.findall(r"gen_mark_(\d+)", listed))
    assert len(asked) > 5
    lines = text.splitlines()
    assert [f"{place + 1}: {lines[place].strip()}" for place in asked if reached[place] == b"\0"] == []
