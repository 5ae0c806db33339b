"""Stencils for tests on the CPU and on a GPU: specs that cover boundaries and reaches, any others, and problems."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import product
from math import prod

import numpy as np
from hypothesis import strategies as st

from gen.dtypes import BF16, F16, F32, F64, I16, U8, U16
from gen.families.base import Variant
from gen.families.names import illegal, search_space, variant
from gen.families.stencil import Stencil, StencilSpec
from gen.families.stencil.algorithms.common import are_images
from gen.families.stencil.algorithms.march import FUSED_BOUNDARIES
from gen.families.stencil.algorithms.overlapped import OverlappedConfig
from gen.families.stencil.spec import BOUNDARIES, Boundary, Outside
from gen.proof.cases import Case, Content

FAMILY = Stencil()
DTYPES = (F32, F16, F64, BF16, U8, I16, U16)
SIXTEENTHS = st.integers(-32, 32).map(lambda n: n / 16)

# An axis: its boundary, and whether the weights reach as far towards lower indices as towards higher ones.
REACHES = ("alike", "after alone", "further after", "further before")
AXES: tuple[tuple[Boundary, str], ...] = tuple(product(BOUNDARIES, REACHES))
# Zeros before the weights of an axis and behind them, in turns.
SIDES = ((1, 0), (0, 1), (1, 1))

TAGS = {
    "temporal": ("v1_r8_n2_t4", "v1_r8_n1_t2", "v2_r8_n1_t2", "v1_r8_n3_t2"),
    "pipelined": ("v2_w2_l1_u1_a4_n1_r2", "v2_w4_l1_u2_a2_n3_r2", "v4_w2_l2_u4_a2_n1_r2"),
    "stream": ("u4_x2_y2", "u2_x1_y8_stcs", "u16_x1_y2"),
    "shifted": ("u4_l32_w2", "u2_l32_w4", "u16_l32_w2", "u8_l16_w2"),
    "naive": ("x32_y2_u2", "x32_y8_u1_wldg"),
    "stacked": ("tpb128_u4", "tpb256_u7"),
    "resident": ("a0_tpb256_u3_t4", "a1_tpb256_u1_t2_n2", "a0_tpb512_u5", "a1_tpb256_u3_t4_c2"),
    "persistent": ("c4_y4_w8_t2", "c4_y2_w12_t4", "c4_y4_w12_t2"),
    "tiled": ("x32_y4_u4", "x64_y1_u1_wconst"),
    "queued": ("x32_u16", "x64_u64_wgmem"),
}
SPACE_TAGS = {
    "resident": ("a0_tpb256_u1_t2", "a1_tpb256_u3_t4_n2", "a2_tpb256_u5_t2", "a1_tpb512_u3", "a1_tpb256_u3_t2_c2"),
    "march": ("w4_u2_n2_r2_s3", "w4_x2_u1_n1_r1_s2", "w4_u1_n2_r4_s4_stcs", "w4_u4_n1_r2_s2"),
    "march fused": ("w4_u4_n1_r2_s2_t2", "w8_u3_n1_r4_s3_t3", "w8_u3_n1_r2_s2_t4_stcs", "w8_u2_n2_r1_s4_t2"),
    "naive": ("x32_y8_u1", "x32_y2_u2", "x64_y8_u1_wldg", "x32_y8_u1_wconst", "x32_y8_u1_ldcg"),
    "stacked": ("tpb256_u1", "tpb128_u7"),
}
LINE_TAGS = {
    "resident": ("a0_tpb256_u1", "a0_tpb256_u3_t4_n2"),
    "overlapped": ("v2_w2_t4", "v4_w4_t8", "v8_w2_t4"),
    "naive": ("x32_y2_u2",),
    "tiled": ("x32_y8_u1_wldg",),
    "stream": ("u2_x2_y2",),
    "shifted": ("u4_l32_w2", "u2_l16_w4"),
}


IMAGE_TAGS = {**TAGS, "march": SPACE_TAGS["march"], "march fused": SPACE_TAGS["march fused"]}


def _ends(reach: str, far: int) -> tuple[int, int]:
    """How far weights reach towards lower and towards higher indices."""
    if reach == "alike":
        return far, far
    if reach == "after alone":
        return 0, far
    return (far, far + 1) if reach == "further after" else (far, far // 3)


def _spec(seed: int, axes: Sequence[tuple[Outside, str]], farthest: int) -> StencilSpec:
    """Weights of these boundaries and reaches; how far they reach, which are 0 and the element type are random.

    Some specs have zeros beside their weights along frozen axes, whose cells depend on that, and along one other; some
    have weights along the axes alone, as `queued` wants them; some have weights of which no product is exact.
    """
    random = np.random.default_rng(seed)
    ends = [_ends(reach, int(random.integers(1, farthest + 1))) for _, reach in axes]
    shape = tuple(low + 1 + high for low, high in ends)
    zeros = int(max(shape) < 15 and random.random() < 0.4)
    off_axis = np.sum([index != low for index, (low, _) in zip(np.indices(shape), ends, strict=True)], axis=0)
    kept = (random.random(shape) < 5 / prod(shape)) & (off_axis < random.integers(len(shape), len(shape) + 2))
    for axis in range(len(shape)):  # the weight that is furthest away on each side
        for furthest in (0, -1):
            kept[tuple(furthest if other == axis else low for other, (low, _) in enumerate(ends))] = True
    weights = kept * random.choice((-1.0, 1.0), shape) * random.integers(1, 17, shape) / random.choice((10, 16))
    # Not along all axes: of 252 weights with 7 that are not 0, the CPU run spends its time on the zeros.
    sides = [
        SIDES[(seed + axis) % 3] if zeros and ("frozen" in boundary or axis == seed % len(axes)) else (0, 0)
        for axis, (boundary, _) in enumerate(axes)
    ]
    padded = np.pad(weights, sides)
    return StencilSpec(
        f"s{seed}",
        tuple(padded.reshape(-1).tolist()),
        padded.shape,
        (F32, F64, F16)[random.choice(3, p=(0.4, 0.4, 0.2))],  # f16 takes twice as long to compile
        tuple(boundary for boundary, _ in axes),
        float(random.choice((0.0, 2.5))),
        tuple(low + rim - extent // 2 for (low, _), (rim, _), extent in zip(ends, sides, padded.shape, strict=True)),
    )


# Wrong by one column or two at the end of its rows, until a warp had the columns that a folded end reads.
ONE_SIDED = StencilSpec("onesided", (0.5, 0.25, 0.25), (1, 3), F32, "mirror", origin=(0, -1))
# Along each axis every boundary with every reach, those of rows and those of columns paired at random.
_ROWS = np.random.default_rng(0).permutation(len(AXES))
SPECS = (ONE_SIDED, *(_spec(place, (AXES[_ROWS[place]], cols), 4) for place, cols in enumerate(AXES)))
LINE_SPECS = tuple(_spec(place, (cols,), 7) for place, cols in enumerate(AXES))
# Of three axes, each with another of those, and each of them once along every axis.
SPACE_SPECS = tuple(
    _spec(place, (AXES[place], AXES[_ROWS[place]], AXES[(_ROWS[place] + 7) % len(AXES)]), 2)
    for place in range(len(AXES))
)
# Those of which march fuses steps.
_FUSED_AXES = tuple(axis for axis in AXES if axis[0] in FUSED_BOUNDARIES)
FUSED_SPECS = tuple(
    _spec(place, tuple(_FUSED_AXES[(place * by + more) % len(_FUSED_AXES)] for by, more in ((1, 0), (5, 2), (7, 5))), 2)
    for place in range(len(_FUSED_AXES))
)


# Batches of images: the specs of two axes, and planes which no weight leaves.
IMAGE_SPECS = tuple(
    replace(
        spec, shape=(1, *spec.shape), boundary=(BOUNDARIES[place % len(BOUNDARIES)], *spec.boundaries),
        origin=(0, *(before - extent // 2 for before, extent in zip(spec.before, spec.shape, strict=True))),
    )
    for place, spec in enumerate(SPECS)
)  # fmt: skip
# Every pair of boundaries that differ, along the last axis of one spec and, with others, along the other axes of some.
ENDS = tuple((before, after) for before, after in product(BOUNDARIES, BOUNDARIES) if before != after)
ENDS_SPECS = tuple(
    _spec(
        place, [(ENDS[(place + 11 * axis) % len(ENDS)], REACHES[(place + axis) % 4]) for axis in range(place % 3, 3)], 3
    )
    for place in range(len(ENDS))
)


def legal(spec: StencilSpec, name: str | None = None) -> list[Variant]:
    """Variants of every algorithm that takes the spec, or of the one of this name."""
    found = []
    known = IMAGE_TAGS if are_images(spec) else (LINE_TAGS, TAGS, SPACE_TAGS)[len(spec.axes) - 1]
    for key, tags in known.items():
        algorithm = key.partition(" ")[0]
        for tag in tags if name in (None, key) else ():
            config = FAMILY.algorithms[algorithm].config.from_tag(tag, algorithm)
            if illegal(FAMILY.algorithms[algorithm], spec, config) is None:
                found.append(variant(FAMILY, spec, algorithm, config))
    return found


def in_turns(specs: Sequence[StencilSpec], *turns: Sequence[str]) -> tuple[Variant, ...]:
    """Of every spec a variant of one algorithm of each of `turns`: algorithms take turns, and so do their configs."""
    found = []
    for place, spec in enumerate(specs):
        for names in turns:
            turn, first = divmod(place, len(names))
            same = next(same for name in (*names[first:], *names[:first]) if (same := legal(spec, name)))
            found.append(same[turn % len(same)])
    return tuple(found)


def narrow() -> list[Variant]:
    """Of every algorithm and number of axes a variant of each type that is added in f32, of several specs in turn."""
    found: list[Variant] = []
    for specs, tags in ((LINE_SPECS, LINE_TAGS), (SPECS, TAGS), (SPACE_SPECS, SPACE_TAGS), (FUSED_SPECS, SPACE_TAGS)):
        for name, dtype in product(tags, (U8, BF16, I16, U16)):
            if (name == "march fused") != (specs is FUSED_SPECS):
                continue
            first = len(found) % len(specs)
            typed = (replace(spec, dtype=dtype, cval=2.0) for spec in (*specs[first:], *specs[:first]))
            takes = next(same for spec in typed if (same := legal(spec, name)))
            found.append(takes[0 if specs is FUSED_SPECS else len(found) % len(takes)])  # more fused steps take minutes
    return found


def ends_differ() -> list[Variant]:
    """Of every algorithm that takes them a variant of several specs whose ends differ."""
    found: list[Variant] = []
    for place, spec in enumerate(ENDS_SPECS):
        takes = legal(spec)
        found.append(takes[(5 * place) % len(takes)])
    return found


# Hypothesis tries the simplest example first, and no other where a test has one: problems begin with one of some cells.


@st.composite
def cases(draw: st.DrawFn) -> Case:
    rows = draw(st.one_of(st.integers(9, 40), st.integers(0, 8)))
    cols = draw(st.one_of(st.integers(100, 290), st.integers(0, 40), st.integers(480, 560)))
    pitched = rows > 1 and cols > 0
    gaps = [draw(st.sampled_from((0, 1, 4, 7))) if pitched else 0 for _ in range(2)]
    sizes = {"rows": rows, "cols": cols, "in_pitch": cols + gaps[0], "out_pitch": cols + gaps[1]}
    steps = draw(st.sampled_from((5, 0, 1, 2, 3, 4, 7, 9)))
    return Case(
        {**sizes, "steps": steps}, draw(st.sampled_from(Content)), draw(st.integers(0, 99)), draw(st.integers(0, 3))
    )


@st.composite
def line_cases(draw: st.DrawFn) -> Case:
    """Lines within a segment of a warp, and of several."""
    ends = st.sampled_from((255, 256, 257, 258, 511, 512, 513))  # of the shortest segments
    cols = draw(st.one_of(st.integers(1000, 2100), ends, st.integers(120, 530), st.integers(0, 70)))
    steps = draw(st.sampled_from((5, 0, 1, 2, 3, 4, 8, 9, 11)))
    return Case(
        {"cols": cols, "steps": steps},
        draw(st.sampled_from(Content)),
        draw(st.integers(0, 99)),
        draw(st.integers(0, 7)),
    )


@st.composite
def space_cases(draw: st.DrawFn) -> Case:
    planes = draw(st.one_of(st.integers(3, 9), st.integers(0, 3)))
    rows = draw(st.one_of(st.integers(7, 20), st.integers(0, 8)))
    cols = draw(st.one_of(st.integers(30, 140), st.integers(0, 40)))
    pitched = planes * rows > 1 and cols > 0
    gaps = [draw(st.sampled_from((0, 1, 4, 7))) if pitched else 0 for _ in range(2)]
    sizes = {"planes": planes, "rows": rows, "cols": cols, "in_pitch": cols + gaps[0], "out_pitch": cols + gaps[1]}
    steps = draw(st.sampled_from((3, 0, 1, 2)))
    return Case(
        {**sizes, "steps": steps}, draw(st.sampled_from(Content)), draw(st.integers(0, 99)), draw(st.integers(0, 3))
    )


def origins(extent: int) -> st.SearchStrategy[int]:
    """Every shift of so many weights."""
    return st.integers(-(extent // 2), (extent - 1) // 2)


def several(made: st.SearchStrategy[Variant], count: int) -> st.SearchStrategy[list[Variant]]:
    """So many variants of different specs: never the simplest that there are, which Hypothesis tries first."""
    return st.lists(made, min_size=count, max_size=count, unique_by=lambda one: one.spec).filter(
        lambda found: sum(len(one.spec.taps) for one in found if isinstance(one.spec, StencilSpec)) > 2 * count
    )


@st.composite
def variants(draw: st.DrawFn) -> Variant:
    """Any weights of up to 17 x 17, few of many, any origin and any boundaries, by any algorithm that takes them."""
    extents = st.sampled_from((1, 2, 3, 3, 4, 5, 5, 7, 9, 12, 17))
    shape = (draw(extents), draw(extents))
    origin = (draw(origins(shape[0])), draw(origins(shape[1])))
    count = prod(shape)
    few = None if count <= 25 else draw(st.sets(st.integers(0, count - 1), max_size=12))  # more take long to compile
    weights = [draw(SIXTEENTHS) if few is None or place in few else 0.0 for place in range(count)]
    ends = st.one_of(st.sampled_from(BOUNDARIES), st.sampled_from(ENDS))
    boundary = (draw(ends), draw(ends))
    dtype = draw(st.sampled_from(DTYPES))
    spec = StencilSpec("any", tuple(weights), shape, dtype, boundary, draw(st.sampled_from((0.0, 3.0))), origin)
    return draw(st.sampled_from(legal(spec)))


@st.composite
def overlapped(draw: st.DrawFn) -> Variant:
    """Any weights of a line, any boundary, with all steps that its segments bear."""
    weights = draw(st.lists(SIXTEENTHS, min_size=1, max_size=17))
    origin = draw(origins(len(weights)))
    spec = StencilSpec(
        "any", tuple(weights), (len(weights),), draw(st.sampled_from(DTYPES)), draw(st.sampled_from(BOUNDARIES)),
        draw(st.sampled_from((0.0, 3.0))), origin,
    )  # fmt: skip
    algorithm = FAMILY.algorithms["overlapped"]
    found = [config for config in search_space(algorithm, spec) if isinstance(config, OverlappedConfig)]
    least = min(config.vectors for config in found)
    short = [config for config in found if config.vectors <= max(least, 4) and config.steps <= 16]
    return variant(FAMILY, spec, algorithm, draw(st.sampled_from(short)))
