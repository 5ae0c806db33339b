"""Stencils for tests on the CPU and on a GPU: specs of each kind, any others, and problems of all sizes."""

from __future__ import annotations

from hypothesis import strategies as st

from gen.dtypes import F16, F32, F64
from gen.families.base import Variant
from gen.families.names import illegal, variant
from gen.families.stencil import Stencil, StencilSpec
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
TAGS = {
    "naive": ("x32_y2_u2", "x32_y8_u1_wldg"),
    "tiled": ("x32_y4_u4", "x64_y1_u1_wconst"),
    "queued": ("x32_u16", "x64_u64_wgmem"),
    "stream": ("u4_x2_y2", "u2_x1_y2_stcs", "u8_x1_y2"),
    "temporal": ("v1_r8_n2_t4", "v2_r8_n1_t2"),
}


def legal(spec: StencilSpec) -> list[Variant]:
    found = []
    for name, tags in TAGS.items():
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
def variants(draw: st.DrawFn) -> Variant:
    """Any weights of radius 1 to 3 and any boundaries, by any algorithm that takes them."""
    radius = draw(st.sampled_from((1, 1, 2, 3)))
    shape = (2 * radius + 1, 2 * radius + 1)
    star = draw(st.booleans())
    weights = [
        draw(SIXTEENTHS) if not star or radius in divmod(place, shape[1]) else 0.0
        for place in range(shape[0] * shape[1])
    ]
    boundary = (draw(st.sampled_from(BOUNDARIES)), draw(st.sampled_from(BOUNDARIES)))
    dtype = draw(st.sampled_from((F32, F16, F64)))
    spec = StencilSpec("any", tuple(weights), shape, dtype, boundary, draw(st.sampled_from((0.0, 3.0))))
    return draw(st.sampled_from(legal(spec)))
