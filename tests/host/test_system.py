"""Systems of several fields: how expressions are built and rounded, what NumPy makes of them, and the kernels."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import gen
from gen.arch import Limits
from gen.dtypes import F32, F64
from gen.errors import ArgumentError, ShapeError, SpecError
from gen.export.program import program_of, targets_of
from gen.families import FAMILIES
from gen.families.base import Array, Plan
from gen.families.names import find_family, variant
from gen.families.plans import steps
from gen.families.system import SystemSpec
from gen.families.system.family import SAMPLES
from gen.families.system.launches import extents_of
from gen.families.system.march import MarchConfig
from gen.families.system.naive import NaiveConfig
from gen.families.system.terms import Field, Joined, Negated, Number, Scalar, Sum, Term, fused, text_of, walk
from gen.families.system.text import text_of_system
from gen.proof.cases import Case, Content
from gen.proof.error_bounds import gamma
from gen.proof.host import HostKernel, HostRunner
from gen.proof.prover import prove
from gen.proof.trace import traffic
from tests.strategies import not_simplest, systems

FAMILY = find_family(FAMILIES, "system")
U, V, M = gen.fields("u v m")
LIMITS = Limits.of("sm_90")
PAD: Mapping[str, Any] = {"nearest": "edge", "reflect": "symmetric", "mirror": "reflect", "wrap": "wrap"}


def said(term: Any) -> str:
    return gen.system({U: term}).said(term)


def plainly(spec: SystemSpec, name: str, fields: Mapping[str, Array]) -> tuple[Array, Array]:
    """What a field becomes, in f64 and as an author of NumPy writes it, and the magnitudes of all that is added.

    Each axis has one boundary, not `frozen`; sums reach no further than there are cells.
    """

    def padded(cells: Array) -> Array:
        wide = np.asarray(cells, np.float64)
        for axis, boundary in enumerate(spec.boundaries):
            width = [(2, 2) if other == axis else (0, 0) for other in range(spec.ndim)]
            assert isinstance(boundary, str)
            if boundary == "constant":
                wide = np.pad(wide, width, constant_values=spec.cval)
            else:
                wide = np.pad(wide, width, mode=PAD[boundary])
        return wide

    def value(term: Term) -> tuple[Array, Array]:
        match term:
            case Number(number):
                return np.asarray(number), np.asarray(abs(number))
            case Field(name, _) | Scalar(name):
                own = np.asarray(fields[name], np.float64)
                return own, np.abs(own)
            case Sum(_, name, taps):
                wide, shape = padded(fields[name]), fields[name].shape
                near = [
                    (weight, wide[tuple(slice(2 + o, 2 + o + n) for o, n in zip(offset, shape, strict=True))])
                    for offset, weight in taps
                ]
                total = sum(weight * cells for weight, cells in near)
                return np.asarray(total), np.asarray(sum(abs(weight * cells) for weight, cells in near))
            case Negated(one):
                inner, size = value(one)
                return -inner, size
            case Joined(operator, left, right):
                (a, of_a), (b, of_b) = value(left), value(right)
                if operator == "*":
                    return a * b, of_a * of_b
                return (a + b if operator == "+" else a - b), of_a + of_b
        raise AssertionError(term)

    return value(dict(spec.updates)[name])


def height(term: Term) -> int:
    """The most roundings on a path from a cell to the result."""
    match term:
        case Sum(_, _, taps):
            return len(taps)
        case Negated(one):
            return height(one)
        case Joined("*", left, right):
            return height(left) + height(right) + 1
        case Joined(_, left, right):
            return max(height(left), height(right)) + 1
    return 0


@given(systems())
def test_any_system_reads_back_from_its_json(spec: SystemSpec) -> None:
    again = FAMILY.from_json(spec.to_json())
    assert again == spec
    assert again.label == spec.label
    assert spec.operands[0].name == "u"
    assert set(spec.fields) <= {"u", "v", "m"}


def test_an_expression_is_said_as_it_was_written() -> None:
    assert said(2 * U - V + 0.25 * M * U.laplace(order=8)) == "2 * u - v + 0.25 * m * laplace(u)"
    assert said((U + V) * -M - (U - V) - -U) == "(u + v) * -m - (u - v) - -u"
    assert said(U * (V * M) + U[0, 1] - U[-1, 2]) == "u * (v * m) + u[0, 1] - u[-1, 2]"
    assert said(U.derivative(1) / 4 + V.derivative(0, 2)) == "slope_cols(u) * 0.25 + curvature_rows(v)"
    assert said(np.float32(0.5) * U**3) == "0.5 * (u * u * u)"


def test_products_that_are_added_are_rounded_once_with_their_sum() -> None:
    def written(term: Term) -> str:
        return text_of(fused(term), lambda one: one.name if isinstance(one, Field) else f"{one.value:g}")  # type: ignore[attr-defined]

    assert written(2 * U - V + M * U) == "fma(m, u, fma(2, u, -v))"
    assert written(U - 3 * V) == "fma(-3, v, u)"
    assert written(-(U * V) + M) == "fma(-u, v, m)"
    assert written(-(2 * V) - M * U) == "fma(-m, u, -2 * v)"
    assert written(U * V - -M) == "fma(u, v, m)"
    assert written((U + V) * (M - 1)) == "(u + v) * (m - 1)"


@given(systems())
def test_no_compiler_has_a_product_to_fuse(spec: SystemSpec) -> None:
    for _, term in spec.updates:
        for part in walk(fused(term)):
            if isinstance(part, Joined) and part.operator != "*":
                sides = (part.left, part.right)
                assert not any(isinstance(side, Joined) and side.operator == "*" for side in sides)
            if isinstance(part, Negated):
                assert not isinstance(part.term, Negated | Number | Joined) or (
                    isinstance(part.term, Joined) and part.term.operator != "*"
                )


def test_brackets_move_all_that_is_read() -> None:
    assert (M * (U - V))[0, 1] == M[0, 1] * (U[0, 1] - V[0, 1])
    assert U[0, 0] == U
    moved = U.laplace()[1, 0]
    assert isinstance(moved, Sum)
    assert [offset for offset, _ in moved.taps] == [(0, 0), (1, -1), (1, 0), (1, 1), (2, 0)]


def test_sums_of_the_same_weights_are_one_function() -> None:
    spec = gen.system({U: U.laplace() + U.laplace(order=4), V: V.laplace()})
    text = text_of_system(spec)
    assert [function.name for function in text.functions] == ["laplace", "laplace_2"]
    assert [reading.name for reading in text.readings] == ["laplace_u", "laplace_2_u", "laplace_v"]


def far(term: Term) -> bool:
    """Whether it reads more than two cells away."""
    return any(abs(place) > 2 for part in walk(term) if isinstance(part, Sum) for o, _ in part.taps for place in o)


@given(systems(), st.integers(0, 99))
def test_numpy_finds_what_plain_numpy_finds_within_the_bound_of_its_roundings(spec: SystemSpec, seed: int) -> None:
    spec = replace(spec, sources=(), receivers=())
    if any(not isinstance(one, str) or one == "frozen" for one in spec.boundaries) or spec.dtype not in (F32, F64):
        return
    random = np.random.default_rng(seed)
    cells = {name: random.uniform(0.5, 1.5, (4,) * spec.ndim).astype(spec.dtype.numpy) for name in spec.fields}
    cells |= {name: np.asarray(random.uniform(0.5, 1.5), spec.dtype.numpy) for name in spec.scalars}
    sizes = dict.fromkeys(spec.axes, 4) | {"steps": 1}
    found = FAMILY.oracle(spec, cells, sizes)
    for name, term in spec.updates:
        exact, magnitude = plainly(spec, name, cells)
        bound = gamma(2 * height(term) + 2, spec.dtype.unit_roundoff) * magnitude
        assert (np.abs(found[f"{name}_out"].value.astype(np.float64) - exact) <= bound).all()


@settings(max_examples=4)
@given(not_simplest(systems()), st.integers(0, 5), st.sampled_from(list(Content)))
def test_random_systems_equal_numpy(host_runner: HostRunner, spec: SystemSpec, steps: int, content: Content) -> None:
    made = [variant(FAMILY, spec, "naive", NaiveConfig(block_x=32, block_y=2))]
    if spec.ndim == 3 and spec.sums:
        made.append(variant(FAMILY, spec, "march", MarchConfig(block_y=4, rows=1, ahead=1)))
    shapes = [(1, 1, 1), (3, 2, 5), (4, 5, 37)]
    cases = [Case(extents_of(spec, shape[-spec.ndim :], steps), content) for shape in shapes]
    for proof in prove(host_runner, made, cases):
        assert proof.failure is None, f"{spec.summary}\n{proof.failure}"
        assert proof.cases == len(cases)


def test_a_wave_is_that_of_plain_numpy() -> None:
    """As the documents call it: f64, so that the two differ by roundings alone."""
    spec = gen.system({U: 2 * U - V + 0.1 * M * U.laplace(order=8), V: U}, boundary="wrap", dtype="f8")
    random = np.random.default_rng(1)
    u, v, m = (random.random((12, 20)) for _ in range(3))
    got_u, got_v = gen.load(spec, device="cpu")(u, v, m, steps=3)
    for _ in range(3):
        weights = enumerate(gen.central_difference(2, 8))
        laplace = sum(weight * (np.roll(u, 4 - i, 0) + np.roll(u, 4 - i, 1)) for i, weight in weights)
        u, v = 2 * u - v + 0.1 * m * laplace, u
    np.testing.assert_allclose(got_u, u, rtol=0, atol=1e-13)
    np.testing.assert_allclose(got_v, v, rtol=0, atol=1e-13)
    assert (got_v != got_u).all()


def test_a_block_that_marches_keeps_what_is_frozen_at_all_ends(host_runner: HostRunner) -> None:
    """A wave of order 8 in three axes, with sources, over more planes than one block computes."""
    u, v, m = gen.fields("u v m", ndim=3)
    spec = gen.system({u: 2 * u - v + 0.1 * m * u.laplace(order=8), v: u}, boundary="frozen", sources=u, receivers=v)
    made = variant(FAMILY, spec, "march", MarchConfig(block_y=4, rows=4, ahead=1))
    cases = [
        Case(extents_of(spec, shape, 2), Content.RANDOM, seed) for seed, shape in enumerate(((9, 10, 34), (34, 17, 9)))
    ]
    (proof,) = prove(host_runner, [made], cases)
    assert proof.failure is None, str(proof.failure)


def test_marching_is_for_three_axes_with_neighbours() -> None:
    def reason(spec: SystemSpec) -> str | None:
        return FAMILY.algorithms["march"].illegal(spec, MarchConfig())

    t = gen.fields("t", ndim=3)[0]
    assert reason(gen.system({U: U.laplace()})) == "it marches through the planes of three axes, and the fields have 2"
    assert reason(gen.system({t: t * t})) == "the spec reads no neighbouring cells"
    assert "bytes of shared memory; there are at most 232448" in (
        reason(gen.system({t: t[16, 16, 16] + t[-16, 0, 0]})) or ""
    )
    specs = gen.system({t: t[0, 1, 0] + t[0, 0, -1]}), gen.system({t: t.laplace()})
    chosen = [FAMILY.heuristic_configs(spec, "any size", LIMITS) for spec in specs]
    assert [[name for name, _ in found] for found in chosen] == [[], ["march"] * 3]


KNOWN: dict[Any, int] = {}


def value(field: str, read: tuple[object, ...]) -> int:
    """A number for what a field becomes of such values."""
    return KNOWN.setdefault((field, read), len(KNOWN))


def values_after(plan: Plan, spec: SystemSpec, count: int) -> dict[str, object]:
    """What the outputs hold after the launches of so many steps, each value as a number that stands for it."""
    held: dict[Any, object] = {name: name for name in spec.fields}
    for step in steps(plan, {**dict.fromkeys(spec.axes, 5), "steps": count}):
        names = [argument for argument in step.arguments if isinstance(argument, str)]
        written = names[1:] if step.entry else names[len(spec.fields) :]
        assert not set(written) & {*spec.fields, *names[: -len(written)]}
        if step.entry:
            held[names[1]] = held[names[0]]
        else:
            read = tuple(held.get(name) for name in names[: len(spec.fields)])
            held |= {name: value(field, read) for name, field in zip(written, spec.computed, strict=True)}
    return {name: held.get(f"{name}_out") for name in spec.updated}


def values_of(spec: SystemSpec, count: int) -> dict[str, object]:
    """The same by the rules of the fields themselves."""
    held: dict[str, object] = {name: name for name in spec.fields}
    for _ in range(count):
        read = tuple(held[name] for name in spec.fields)
        held |= {
            name: held[term.name] if name not in spec.computed and isinstance(term, Field) else value(name, read)
            for name, term in spec.updates
        }
    return {name: held[name] for name in spec.updated}


A, B, C = gen.fields("a b c")
HISTORIES = {
    "one": gen.system({U: U.laplace()}),
    "two": gen.system({U: 2 * U - V + M, V: U}),
    "others first": gen.system({V: U, C: V, U: 2 * U - V + C, M: A, A: A + M}),
    "long and short": gen.system({U: U + C, V: U, A: V, M: A, B: B + U, C: B}),
    "circles": gen.system({U: V, V: U, A: A, B: A, C: A, M: C}),
}


@pytest.mark.parametrize("spec", HISTORIES.values(), ids=HISTORIES)
def test_arrays_that_change_places_hold_what_copies_would_after_any_number_of_steps(spec: SystemSpec) -> None:
    plan = FAMILY.algorithms["naive"].plan(spec, NaiveConfig())
    for count in range(26):
        assert values_after(plan, spec, count) == values_of(spec, count), count


def test_each_exchange_of_arrays_is_needed() -> None:
    spec = HISTORIES["two"]
    plan = FAMILY.algorithms["naive"].plan(spec, NaiveConfig())
    for place, launch in enumerate(plan.launches):
        for number in range(len(launch.swap)):
            fewer = replace(launch, swap=launch.swap[:number] + launch.swap[number + 1 :])
            broken = replace(plan, launches=(*plan.launches[:place], fewer, *plan.launches[place + 1 :]))
            with suppress(AssertionError):  # a launch would write what it reads
                assert any(values_after(broken, spec, count) != values_of(spec, count) for count in range(9)), launch
                continue
            assert broken.scratch == plan.scratch


def test_a_field_that_takes_what_another_was_moves_no_bytes(host_runner: HostRunner) -> None:
    """A wave in 16 bytes a cell: `u`, `v` and `m` are read, `u` is written; one spare array suffices."""
    wave = FAMILY.catalogue[0]
    made = variant(FAMILY, wave, "naive", NaiveConfig())
    (kernel,) = host_runner.load([made])
    assert isinstance(kernel, HostKernel)
    found = traffic(kernel, host_runner.limits, {"rows": 64, "cols": 64, "steps": 30})
    assert found.launches == 30
    assert sum(access.requested_bytes for access in found.of("global", "store")) == 30 * 4 * 64 * 64
    assert [scratch.name for scratch in made.plan.scratch] == ["u_spare"]


def test_sources_are_added_in_their_order_and_receivers_see_the_step() -> None:
    """As NumPy's `add.at` does, to the last bit; what lies outside is refused."""
    spec = gen.system({U: 2 * U - V, V: U}, sources=U, receivers=[V, U])
    kernel = gen.load(spec, device="cpu")
    random = np.random.default_rng(3)
    u, v = (random.random((5, 7), dtype=np.float32) for _ in range(2))
    sources, receivers = np.array([[1, 2], [4, 6], [1, 2], [0, 0], [1, 2]]), np.array([[1, 2], [4, 6], [3, 3]])
    wavelets = (random.random((4, 5)) * 10.0 ** np.arange(5)).astype(np.float32)
    got = kernel(u, v, sources, wavelets, receivers[:2], receivers)
    seen = []
    for step in range(4):
        u, v = 2 * u - v, u
        np.add.at(u, tuple(sources.T), wavelets[step])
        seen.append((v[tuple(receivers[:2].T)], u[tuple(receivers.T)]))
    expected = (u, v, np.stack([one for one, _ in seen]), np.stack([one for _, one in seen]))
    for one, other in zip(got, expected, strict=True):
        np.testing.assert_array_equal(one, other)
    assert kernel(u, v, sources[:0], wavelets[:, :0], receivers, receivers, steps=4)[3].shape == (4, 3)

    def refused(says: str, *arrays: Any, **more: int) -> None:
        with pytest.raises(ShapeError) as caught:
            kernel(u, v, *arrays, **more)
        assert says in str(caught.value)

    outside = np.array([[1, 2], [5, 0]])
    refused("u_sources must be points of fields of shape (5, 7), counted from 0 (got point 1: (5, 0))",
            outside, wavelets[:, :2], receivers, receivers)  # fmt: skip
    refused("u_receivers must be points of fields of shape (5, 7)", sources, wavelets, receivers, -receivers)
    refused("u_wavelets must have 5 u_source_count", sources, wavelets[:, :4], receivers, receivers)
    refused("u_wavelets must have 3 steps, as the call says", sources, wavelets, receivers, receivers, steps=3)
    refused("u_sources must have an extent of 2 along axis 1", sources[:, :1], wavelets, receivers, receivers)
    refused("u_sources must hold i64 elements", sources.astype("f4"), wavelets, receivers, receivers)


def test_steps_with_sources_cost_the_cells_of_their_points(host_runner: HostRunner) -> None:
    """Whatever the number of steps, few launches are looked at, and none copies a field."""
    made = variant(FAMILY, SAMPLES[-1], "naive", NaiveConfig())
    (kernel,) = host_runner.load([made])
    assert isinstance(kernel, HostKernel)
    found = traffic(kernel, host_runner.limits, extents_of(made.spec, (8, 8), 50))  # type: ignore[arg-type]
    assert found.launches == 1 + 50 * 4
    assert found.traced < 40
    traces = [access for access in found.of("global", "store") if access.buffer in ("u_traces", "v_traces")]
    assert sum(access.requested_bytes for access in traces) == 2 * 50 * 3 * 4


def test_a_scalar_is_given_at_the_call() -> None:
    """By its name or after the arrays; another needs no other kernel."""
    rate, shift = gen.scalars("rate shift")
    kernel = gen.load(gen.system({U: U + rate * M - shift}, dtype="f2"), device="cpu")
    u, m = np.full((3, 5), 2.0, np.float16), np.full((3, 5), 0.5, np.float16)
    np.testing.assert_array_equal(kernel(u, m, 4.0, 1.0), np.full((3, 5), 3.0, np.float16))
    again = kernel(u, m, shift=-1, rate=0.1, steps=2)
    np.testing.assert_array_equal(again, np.full((3, 5), 4.1015625, np.float16))
    with pytest.raises(ArgumentError, match="rate is missing"):
        kernel(u, m, shift=1)
    with pytest.raises(ArgumentError, match="shift must be a number that f32 holds"):
        kernel(u, m, 1.0, 1e60)


WRONG: list[tuple[Callable[[], Any], str]] = [
    (lambda: gen.fields(""), "fields.names must be words, each once"),
    (lambda: gen.fields("u u"), "fields.names must be words, each once"),
    (lambda: gen.fields("float"), "system.fields must be a small letter and up to 15 small letters and digits, and no"),
    (lambda: gen.fields("u", ndim=4), "fields.ndim must be a whole number from 1 to 3 (got 4)"),
    (lambda: U[0.5], "system.offset must be whole numbers, one an axis (got 0.5)"),
    (lambda: U[1], "system.offset must be 2 whole numbers, one an axis (got (1,))"),
    (lambda: U / 0, "must not divide by 0"),
    (lambda: U**9, "may have whole powers from 1 to 8 (got 9)"),
    (lambda: U.derivative(2), "system.axis must be a whole number from -2 to 1 (got 2)"),
    (lambda: U.correlate([1, 2]), "system.weights must have 2 axes, as the field has (got 1 axes)"),
    (lambda: U.correlate([[0]]), "system.weights must not all be 0"),
    (lambda: gen.system({}), "system.updates must say what at least one field becomes"),
    (lambda: gen.system({"u": U}), "system.updates must be a dict from fields, made by gen.fields, to expressions"),
    (lambda: gen.system({U: "u"}), "system.updates of u must be an expression or a number (got 'u')"),
    (lambda: gen.system({U: sum([V] * 200, U)}), "system.updates of u must have at most 200 operators, fields"),
    (lambda: gen.system({U: 1e50 * U}), "system.updates must hold numbers, finite as f32 (got 1e+50)"),
    (lambda: gen.system({U: gen.fields("w", 3)[0]}), "system.fields: w must have 2 axes, as the first field (got 3)"),
    (lambda: gen.system({U: U.correlate([[1]], word="float")}), "system.word of a sum must be a small letter"),
    (lambda: gen.system({U: U[0, 17]}), "system.offset must be 2 whole numbers each, at most 16 from 0"),
    (lambda: gen.system({U: U}, dtype="i4"), "system.dtype must be one of f16, bf16, f32, f64 (got 'i4')"),
    (lambda: gen.system({U: U}, boundary="around"), "system.boundary must be one of constant, nearest"),
    (lambda: gen.system({U: U}, cval=float("nan")), "system.cval must hold numbers, finite as f32 (got nan)"),
    (lambda: gen.scalars("k 2k"), "system.fields must be a small letter and up to 15"),
    (lambda: gen.system({U: U + gen.scalars("u")[0]}), "must not call a field and a scalar alike (got u)"),
    (lambda: gen.system({U: U}, sources="u"), "system.sources must be a field, or a list of fields, made by gen"),
    (lambda: gen.system({U: U + M}, sources=M), "system.sources must be fields that change, each once: u (got m)"),
    (lambda: gen.system({U: U}, receivers=[U, U]), "system.receivers must be fields that change, each once: u (got u"),
    (lambda: FAMILY.from_json({**gen.system({U: U}).to_json(), "sources": "u"}), "must be lists of names"),
    (lambda: FAMILY.from_json({"word": "w", "ndim": 2, "dtype": "f32", "updates": [["u", ["/", 1, 2]]]}),
     "system.updates must be fields, numbers, sums, or lists that begin with +, - or *"),
    (lambda: FAMILY.from_json({"word": "w", "ndim": 2, "dtype": "f32", "updates": 3}), "must be a list of names, each"),
]  # fmt: skip


@pytest.mark.parametrize(("make", "says"), WRONG, ids=[says for _, says in WRONG])
def test_a_system_that_cannot_be_is_refused(make: Callable[[], Any], says: str) -> None:
    with pytest.raises(SpecError) as caught:
        make()
    assert says in str(caught.value)


def test_a_call_says_which_field_is_wrong() -> None:
    kernel = gen.load(gen.system({U: U + M}), device="cpu")
    cells = np.ones((3, 4), np.float32)
    with pytest.raises(ArgumentError, match="takes 2 arguments: u, m"):
        kernel(cells)
    with pytest.raises(gen.GenError, match="m must have 3 rows"):
        kernel(cells, cells[:2])


def test_an_export_has_room_for_histories_and_refuses_longer_ones() -> None:
    targets = targets_of(["sm_90"], ())
    assert "plan.swap" in program_of(FAMILY, HISTORIES["long and short"], targets, ()).entries[0].plan
    fields = gen.fields("a b c d e f g h")
    long = gen.system({one: before for before, one in pairwise(fields)} | {fields[0]: fields[-1] + M})
    with pytest.raises(SpecError, match="must have at most 48 launches to be exported"):
        program_of(FAMILY, long, targets, ())
