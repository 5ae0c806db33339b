"""What spreads shared memory over the banks has an effect: where a text ignores it, more wavefronts are counted.

Padding, exchanged columns and the functions `slot` change no result, so that only the counted run sees them.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

import pytest

from gen.arch import MODERN
from gen.emit.render import render
from gen.families import FAMILIES
from gen.families.extents import checked_runtime_parameters, extents_of
from gen.families.names import find_variant
from gen.paths import templates_root
from gen.proof.host import HostKernel, HostRunner
from gen.proof.trace import traffic
from tests.host.reductions import H100


@dataclass(frozen=True)
class Spread:
    """What spreads the tile of a kernel.

    Attributes:
        name: the kernel's.
        changes: old and new text of a kernel that ignores it.
        shape: of the array that it is run on.
        most: the conflicts that are left: wavefronts over the least.
    """

    name: str
    changes: tuple[tuple[str, str], ...]
    shape: tuple[int, ...] = (512, 512)
    most: float = 1.0


TILED = "transpose_10_b32__tiled_t{}_r8_p{}_u1{}"
OF_VECTORS = "transpose_10_b32__vector_tile_v{}_x8_g8_{}_ocol_ldg"
SWIZZLED = (("(x + i) ^ (y + j)", "x + i"), ("(y + j + i) ^ x", "y + j + i"))
SPREADS = (
    Spread(TILED.format(32, 1, ""), (("kTileCols + kPadding]", "kTileCols]"),)),
    # An element after each column, not after each row.
    Spread(TILED.format(64, 1, ""), (("[kTileDim][kTileCols + kPadding]", "[kTileDim + kPadding][kTileCols]"),)),
    Spread(TILED.format(32, 1, "_dyn"), (("[kTileDim][kTileCols + kPadding]", "[kTileDim + kPadding][kTileCols]"),)),
    Spread(TILED.format(32, 0, "_swz"), SWIZZLED),
    Spread(TILED.format(64, 0, "_swz"), SWIZZLED),
    Spread(OF_VECTORS.format(16, "swz"), (("group ^ col / kElements % kGroups", "group"),)),
    Spread(OF_VECTORS.format(16, "pad"), (("kGroups + kPadding", "kGroups"),), most=2.5),
    Spread(OF_VECTORS.format(4, "swz"), (("group ^ col / kElements % kGroups", "group"),)),
    Spread("transpose_10_b32__grouped_tile_a2_v4_x32_y32_u4_ocol", (("kDown + kPadding", "kDown"),), most=1.2),
    Spread("transpose_10_b32__grouped_tile_a2_v16_x16_y16_u1_ocol", (("kDown + kPadding", "kDown"),), most=1.5),
    Spread("transpose_10_b32__window_tile_t64_c32_w8_ocol", (("kTileCols + kPadding", "kTileCols"),)),
    Spread("transpose_10_b32_in_place__swap_tile_v8_x16_s8", (("group ^ col / kElements % kLanes", "group"),)),
    Spread("transpose_10_b32_in_place__swap_tile_v4_x32_s1", (("kLanes + kPadding", "kLanes"),)),
    Spread("transpose_10_b32__skinny_cols_b4096_tpb128", (("unit ^ unit / kLine % kLine", "unit"),), (4096, 8)),
    Spread("transpose_10_b32__small_b4096_tpb128", (("unit ^ unit / kLine % kLine", "unit"),), (32, 32)),
    Spread(
        "transpose_0321_b8__packed_a4_tpb256_u8",
        (("unit ^ (line ^ line / 4) % kLine", "unit"),),
        (4, 64, 16, 5),
        most=2.0,
    ),
    Spread("transpose_10_b32__squares_tpb64_u1", (("vector ^ vector / 8 % 8 ^ vector / 64 % 8", "vector"),), (16, 16)),
    Spread("transpose_10_b32__interleave_cols_n4_tpb64", (("vector ^ vector / 8 % 8", "vector"),), (4096, 4)),
    Spread(
        "stencil_derivative_31b2c1af_f32__overlapped_v2_w2_t4", (("vector ^ vector / kVectors % 8", "vector"),), (4096,)
    ),
    Spread("setRowReadColPad", (("kWidth + kPadding]", "kWidth]"),), (1, 32, 32)),
)
TOGETHER = (
    pytest.param(SPREADS[::4], id="some"),
    pytest.param(SPREADS, id="all", marks=pytest.mark.exhaustive),
)


def ignoring(spread: Spread, text: str) -> str:
    """The text of a kernel that ignores what spreads its tile."""
    for old, new in spread.changes:
        assert old in text, spread.name
        text = text.replace(old, new)
    return text


def conflicts(kernel: HostKernel, shape: tuple[int, ...]) -> float:
    """Wavefronts of shared memory over the least, of an array of this shape."""
    made = kernel.variant
    sizes = {
        **extents_of(made.family, made.spec, shape),
        **checked_runtime_parameters(made.family, made.spec, {}),
    }
    assert made.algorithm.unsupported_extents(made.spec, made.config, sizes, H100) is None, made.name
    return traffic(kernel, H100, sizes, MODERN).conflict_degree


@pytest.mark.parametrize("spreads", TOGETHER)
def test_what_spreads_a_tile_over_the_banks_does(spreads: tuple[Spread, ...], cache: Path) -> None:
    made = {find_variant(FAMILIES, spread.name, {}): spread for spread in spreads}
    whole = HostRunner(H100, cache=cache, text=render).load(list(made))
    without = HostRunner(H100, cache=cache, text=lambda one: ignoring(made[one], render(one))).load(list(made))
    for kernel, other in zip(whole, without, strict=True):
        spread = made[kernel.variant]
        counted = conflicts(kernel, spread.shape)
        assert counted <= spread.most, kernel.variant.name
        assert conflicts(other, spread.shape) >= 1.5 * counted, kernel.variant.name


def test_every_template_that_spreads_a_tile_is_here() -> None:
    root = Path(str(templates_root()))
    texts = {path.relative_to(root).with_suffix("").stem: path.read_text() for path in root.rglob("*.cu.jinja")}
    spreading = {name for name, text in texts.items() if re.search(r"\bkPadding =| slot\(", text)}
    covered = {find_variant(FAMILIES, spread.name, {}).algorithm.name for spread in SPREADS}
    assert {name for name in spreading if not name.startswith("_")} == covered - {"skinny", "small"}
