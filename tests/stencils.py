"""Stencils for tests on the CPU and on a GPU: specs of each kind, any others, and problems of all sizes."""

from __future__ import annotations

from hypothesis import strategies as st

from gen.dtypes import F16, F32, F64
from gen.families.base import Variant
from gen.families.names import illegal, space, variant
from gen.families.stencil import Stencil, StencilSpec
from gen.families.stencil.overlapped import OverlappedConfig
from gen.families.stencil.spec import BOUNDARIES
from gen.proof.cases import Case, Content

FAMILY = Stencil()
SIXTEENTHS = st.integers(-32, 32).map(lambda n: n / 16)

# One of each kind, each in many specs: star and box, radius 1 to 4, asymmetric, even extents, every boundary.
SPECS = (
    StencilSpec("a", tuple(range(1, 10)), boundary="reflect"),
    StencilSpec("b", (0, 1, 0, 2, -4, 3, 0, 5, 0), dtype=F16, boundary=("mirror", "wrap")),
    StencilSpec("c", (1, 0, 0, 0, 0.5, 0, 0, 0, -1), dtype=F64, boundary=("wrap", "nearest")),
    StencilSpec("d", tuple(range(-4, 4)), (2, 4), boundary=("constant", "mirror"), cval=2.5, origin=(-1, 1)),
    StencilSpec("e", tuple(x - 12.0 for x in range(25)), (5, 5), boundary=("nearest", "frozen")),
    StencilSpec("f", tuple(x / 8 if x % 9 == 4 or x // 9 == 4 else 0 for x in range(81)), (9, 9), boundary="frozen"),
    StencilSpec("g", tuple(range(1, 10)), boundary=("wrap", "frozen")),
    StencilSpec("h", tuple(range(1, 10)), boundary=("frozen", "wrap")),
    StencilSpec("i", tuple(x - 16.0 for x in range(33)), (11, 3), boundary=("reflect", "constant")),  # loads in turns
)
# Of one axis: every boundary, asymmetric, even extents; frozen cells beyond what weights reach.
LINE_SPECS = (
    *(StencilSpec("l", (1.0, -2.0, 0.5, 3.0), (4,), F32, boundary, 1.5, origin=-1) for boundary in BOUNDARIES),
    StencilSpec("w", tuple(range(-8, 9)), (17,), F64, "wrap"),
    StencilSpec("r", (1.0, -2.0, 0.5), (3,), F32, origin=1),  # all to one side
    StencilSpec("h", (0, 0, 0.5, 0.25, 1, 0, 1, 0, 0), (9,), F16, "frozen"),
)
TAGS = {
    "naive": ("x32_y2_u2", "x32_y8_u1_wldg"),
    "tiled": ("x32_y4_u4", "x64_y1_u1_wconst"),
    "queued": ("x32_u16", "x64_u64_wgmem"),
    "stream": ("u4_x2_y2", "u2_x1_y8_stcs", "u16_x1_y2"),
    "temporal": ("v1_r8_n2_t4", "v2_r8_n1_t2"),
}
LINE_TAGS = {
    "naive": ("x32_y2_u2",),
    "tiled": ("x32_y8_u1_wldg",),
    "stream": ("u2_x2_y2",),
    "overlapped": ("v2_w2_t4", "v4_w4_t8"),
}


def legal(spec: StencilSpec) -> list[Variant]:
    found = []
    for name, tags in (TAGS if len(spec.axes) > 1 else LINE_TAGS).items():
        algorithm = FAMILY.algorithms[name]
        for tag in tags:
            config = algorithm.config.from_tag(tag, name)
            if illegal(algorithm, spec, config) is None:
                found.append(variant(FAMILY, spec, algorithm, config))
    return found


@st.composite
def cases(draw: st.DrawFn) -> Case:
    rows, cols = (
        draw(st.integers(0, 40)),
        draw(st.one_of(st.integers(0, 40), st.integers(100, 290), st.integers(480, 560))),
    )
    pitched = rows > 1 and cols > 0
    gaps = [draw(st.sampled_from((0, 1, 4, 7))) if pitched else 0 for _ in range(2)]
    sizes = {"rows": rows, "cols": cols, "in_pitch": cols + gaps[0], "out_pitch": cols + gaps[1]}
    steps = draw(st.sampled_from((1, 0, 2, 3, 4, 5, 7, 9)))
    return Case(
        {**sizes, "steps": steps}, draw(st.sampled_from(Content)), draw(st.integers(0, 99)), draw(st.integers(0, 3))
    )


@st.composite
def line_cases(draw: st.DrawFn) -> Case:
    """Lines within a segment of a warp, and of several."""
    ends = st.sampled_from((255, 256, 257, 258, 511, 512, 513))  # of the shortest segments
    cols = draw(st.one_of(st.integers(0, 70), ends, st.integers(120, 530), st.integers(1000, 2100)))
    steps = draw(st.sampled_from((1, 2, 0, 3, 4, 5, 8, 9, 11)))
    return Case(
        {"cols": cols, "steps": steps},
        draw(st.sampled_from(Content)),
        draw(st.integers(0, 99)),
        draw(st.integers(0, 7)),
    )


def origins(extent: int) -> st.SearchStrategy[int]:
    """Every shift of so many weights."""
    return st.integers(-(extent // 2), (extent - 1) // 2)


@st.composite
def variants(draw: st.DrawFn) -> Variant:
    """Any weights of up to 7 x 7, even extents too, any origin and any boundaries, by any algorithm that takes them."""
    extents = st.sampled_from((1, 2, 3, 3, 4, 5, 5, 7))
    shape = (draw(extents), draw(extents))
    origin = (draw(origins(shape[0])), draw(origins(shape[1])))
    star = draw(st.booleans()) or shape[0] * shape[1] > 25  # larger ones take long to compile
    row, col = (extent // 2 + shift for extent, shift in zip(shape, origin, strict=True))
    weights = [
        draw(SIXTEENTHS) if not star or y == row or x == col else 0.0 for y in range(shape[0]) for x in range(shape[1])
    ]
    boundary = (draw(st.sampled_from(BOUNDARIES)), draw(st.sampled_from(BOUNDARIES)))
    dtype = draw(st.sampled_from((F32, F16, F64)))
    spec = StencilSpec("any", tuple(weights), shape, dtype, boundary, draw(st.sampled_from((0.0, 3.0))), origin)
    return draw(st.sampled_from(legal(spec)))


@st.composite
def overlapped(draw: st.DrawFn) -> Variant:
    """Any weights of a line, any boundary, with all steps that its segments bear."""
    weights = draw(st.lists(SIXTEENTHS, min_size=1, max_size=17))
    origin = draw(origins(len(weights)))
    spec = StencilSpec(
        "any", tuple(weights), (len(weights),), draw(st.sampled_from((F32, F16, F64))),
        draw(st.sampled_from(BOUNDARIES)), draw(st.sampled_from((0.0, 3.0))), origin,
    )  # fmt: skip
    algorithm = FAMILY.algorithms["overlapped"]
    found = [config for config in space(algorithm, spec) if isinstance(config, OverlappedConfig)]
    least = min(config.vectors for config in found)
    short = [config for config in found if config.vectors <= max(least, 4) and config.steps <= 16]
    return variant(FAMILY, spec, algorithm, draw(st.sampled_from(short)))
