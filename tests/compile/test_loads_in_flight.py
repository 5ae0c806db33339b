"""Loads that a thread has in flight, counted in the machine code for sm_90: what unroll and rings are for.

A load is in flight from where it stands in the code to the first instruction that reads its registers; copies to shared
memory are so up to the instruction that waits for their group.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from itertools import product
from typing import Any

import pytest

from gen.emit.render import render
from gen.families import FAMILIES
from gen.families.base import Algorithm, Family, Variant
from gen.families.config import Config
from gen.families.names import find_variant, legal_space, search_space, variant
from gen.families.stencil.algorithms.temporal import ROWS_AHEAD
from gen.toolchain.nvrtc import Nvrtc
from gen.toolchain.sass import disassembler, listing
from tests.host.test_parameter_effects import specs

LATENCY = 500  # instructions that go by before a load has come
INSTRUCTION = re.compile(r"/\*[0-9a-f]{4,}\*/\s+(?:@!?U?P\w+\s+)?([A-Z][A-Z0-9_.]*)\s*(.*?);")
REGISTER = re.compile(r"\bR(\d+)\b")
WAIT = re.compile(r"\bDEPBAR\.LE\s+SB0,\s*0x(\w+)")
NO_RESULT = ("ST", "RED", "BAR", "BRA")  # their operands are all read
# Whose elements a thread loads from global memory one after the other, by the rules of the language or as NVRTC 13.0
# decides, or in loops that no parameter unrolls.
ONE_BY_ONE = {
    "offset": "its arrays may overlap, so that each load waits for the store before it",
    "records": "its arrays may overlap, so that each load waits for the store before it",
    "naive stencil": "each row's neighbours are asked for at once already; its rows share what they read",
    "resident": "its unrolled cells come from shared memory, which a loop over lines has filled before",
    "tiled stencil": "the cells of a tile come in a loop whose length is that of no unrolled one",
}

# NVRTC 13.0 unrolls the loop over the vectors of one row by itself, so that as much is in flight as of several rows.
BOTH_UNROLLED = (("rows", "rows_at_once"),)


def code(made: Variant, text: str | None = None) -> str:
    """The instructions of the main kernel, one a line."""
    program = disassembler()
    assert program is not None, "nvdisasm is not installed: pip install nvidia-cuda-nvdisasm"
    found = listing(Nvrtc(None).compile(made.name, text or render(made), "sm_90").cubin, program)
    _, _, body = found.partition(f".section	.text.{made.name},")
    return body.partition("\n	.section")[0]


def instructions(body: str) -> Iterator[tuple[str, list[int], list[int]]]:
    """Each with the first register that it writes, none where it writes a predicate or memory, and those it reads."""
    for opcode, operands in INSTRUCTION.findall(body):
        registers = [int(number) for number in REGISTER.findall(operands)]
        first, _, _ = operands.partition(",")
        written = [] if opcode.startswith(NO_RESULT) or "[" in first else registers[: len(REGISTER.findall(first))]
        yield opcode, written, registers[len(written) :]


def bytes_of(opcode: str) -> int:
    """What a load brings."""
    sizes = {"128": 16, "64": 8, "U16": 2, "S16": 2, "U8": 1, "S8": 1}
    return next((size for mark, size in sizes.items() if f".{mark}" in opcode), 4)


def bytes_in_flight(body: str) -> int:
    """Most bytes of loads that stand before the first instruction that reads what one of them brings."""
    most, waiting = 0, list[tuple[range, int]]()
    for opcode, written, read in instructions(body):
        for place in reversed(range(len(waiting))):
            if set(read).intersection(waiting[place][0]):  # and what was asked for before it is there
                del waiting[: place + 1]
                break
        if opcode.startswith("LDG.") and written:
            size = bytes_of(opcode)
            brought = range(written[0], written[0] + max(size // 4, 1))
            waiting = [one for one in waiting if not set(one[0]).intersection(brought)]
            waiting.append((brought, size))
            most = max(most, sum(size for _, size in waiting))
    return most


def loads_and_waits(body: str) -> tuple[int, int]:
    """Loads, and how often a thread waits for one most of its latency: those asked for together come together."""
    now, loads, waits, there = 0, 0, 0, dict[int, int]()
    for opcode, written, read in instructions(body):
        late = max((there.get(register, 0) for register in read), default=0)
        waits += late > now + LATENCY // 2
        now = max(now + 1, late)
        is_load = opcode.startswith("LDG.") and bool(written)
        loads += is_load
        for register in written:
            for brought in range(register, register + (max(bytes_of(opcode) // 4, 1) if is_load else 1)):
                there[brought] = now + LATENCY if is_load else now
    return loads, waits


def least_and_most(family: Family[Any], name: str, field: str) -> tuple[Variant, Variant]:
    """Variants with the least and the most of a parameter, alike in all others, that ask for few bytes."""
    algorithm: Algorithm[Any, Any] = family.algorithms[name]

    def apart(same: list[Config]) -> float:
        return float(getattr(same[-1], field) / getattr(same[0], field))

    for space, spec in product((search_space, legal_space), specs(family, name)):
        alike: dict[object, list[Config]] = {}
        for config in sorted(space(algorithm, spec), key=lambda one: getattr(one, field)):
            others = tuple(getattr(config, p.field) for p in config.parameters() if p.field != field)
            alike.setdefault(others, []).append(config)
        same = max(
            alike.values(), key=lambda same: (apart(same), -algorithm.bytes_in_flight(spec, same[0])), default=[]
        )
        if len(same) > 1:
            return variant(family, spec, algorithm, same[0]), variant(family, spec, algorithm, same[-1])
    raise AssertionError(f"{name} has no two variants that differ in {field} alone")


UNROLLED = [
    (family, name, field)
    for family in FAMILIES
    for name, algorithm in family.algorithms.items()
    for field in ("unroll", "rows_at_once")
    if field in {parameter.field for parameter in algorithm.config.parameters()}
    and name not in ONE_BY_ONE
    and f"{name} {family.name}" not in ONE_BY_ONE
    and (name, field) not in BOTH_UNROLLED
]


def stated(made: Variant) -> int:
    return made.algorithm.bytes_in_flight(made.spec, made.config)


@pytest.mark.exhaustive
@pytest.mark.parametrize(("family", "name", "field"), [pytest.param(*one, id=one[1]) for one in UNROLLED])
def test_unrolled_loads_are_in_flight_together(family: Family[Any], name: str, field: str) -> None:
    least, most = least_and_most(family, name, field)
    codes = [code(made) for made in (least, most)]
    found = [bytes_in_flight(one) for one in codes]
    assert found[0] < found[1], (least.name, most.name)
    assert 3 * found[1] >= stated(most), most.name
    (few, seldom), (many, often) = (loads_and_waits(one) for one in codes)
    assert 2 * (often - seldom) < many - few, most.name  # what is asked for beside others is not waited for alone


@pytest.mark.exhaustive
@pytest.mark.parametrize(("name", "field"), [("stream", "rows"), ("shifted", "rows"), ("overlapped", "vectors")])
def test_rows_and_vectors_of_a_stencil_are_in_flight_together(name: str, field: str) -> None:
    family = next(family for family in FAMILIES if family.name == "stencil")
    least, most = least_and_most(family, name, field)
    found = [bytes_in_flight(code(made)) for made in (least, most)]
    assert found[0] < found[1]
    assert found[1] >= stated(most)


@pytest.mark.exhaustive
@pytest.mark.parametrize(
    ("name", "field", "ahead"),
    [
        ("march", "ring", lambda config: config.ring - 1),
        ("temporal", "vectors", lambda _: ROWS_AHEAD),
        ("pipelined", "rows", lambda config: config.rows_ahead - config.rows + 1),
    ],
    ids=("march", "temporal", "pipelined"),
)
def test_copies_to_shared_memory_are_in_flight_together(name: str, field: str, ahead: Callable[[Config], int]) -> None:
    family = next(family for family in FAMILIES if family.name == "stencil")
    for made in least_and_most(family, name, field):
        left = [int(number, 16) for number in WAIT.findall(code(made))]
        assert max(left) + 1 == ahead(made.config), made.name  # groups: what is waited for, and those that may be left


@pytest.mark.parametrize(
    ("name", "together", "alone", "nbytes"),
    [
        ("reduction_sum_f32__grid_tpb128_u8_v16_bpm1", "kUnroll = 8", "kUnroll = 1", 128),
        ("stencil_heat_de794a2b_f32__resident_a0_tpb256_u3_t4", "kAtOnce = 4", "kAtOnce = 1", 16),
    ],
)
def test_a_text_that_loads_one_by_one_is_found_out(name: str, together: str, alone: str, nbytes: int) -> None:
    made = find_variant(FAMILIES, name, {})
    text = render(made)
    assert bytes_in_flight(code(made, text)) == stated(made) == nbytes
    assert 2 * bytes_in_flight(code(made, text.replace(together, alone))) < nbytes


def test_a_text_whose_loads_wait_for_each_other_is_found_out() -> None:
    made = find_variant(FAMILIES, "transpose_10_b32__gather_tpb128_u4", {})
    text = render(made)
    chained = text.replace("in[there]", "in[there + (u > 0 && loaded[u - 1] == 7)]")
    assert [loads_and_waits(code(made, one)) for one in (text, chained)] == [(4, 1), (4, 4)]
