"""How a kernel takes its pointers, read from its text: as const, on the read-only path, or to write."""

from __future__ import annotations

import pytest

from gen.proof.code import Taken, taken, together


@pytest.mark.parametrize(
    ("parameters", "expected"),
    [
        ("const float* __restrict__ in", (Taken.READ_ONLY,)),
        ("float const* const __restrict__ in", (Taken.READ_ONLY,)),
        ("const float* in", (Taken.CONST,)),
        ("float* __restrict__ out", (Taken.MUTABLE,)),
        ("float* const out", (Taken.MUTABLE,)),
        ("const float** __restrict__ in /* const */, int n", (Taken.READ_ONLY, Taken.MUTABLE)),
        ("Pair<const int, int>* out,\n  const Pair<int, int>* __restrict in  // (", (Taken.CONST, Taken.READ_ONLY)),
        ("", ()),
    ],
)
def test_how_a_kernel_takes_its_pointers(parameters: str, expected: tuple[Taken, ...]) -> None:
    text = f"void k({parameters}\n);\nvoid __launch_bounds__(32) other(k(1)) {{}}\nvoid k (\n{parameters}\n) {{ }}"
    assert taken(text, "k") == expected
    assert taken(text, "absent") == ()


def test_a_buffer_that_is_passed_twice() -> None:
    assert together({Taken.CONST}) is Taken.CONST
    assert together({Taken.CONST, Taken.READ_ONLY}) is Taken.READ_ONLY
    assert together({Taken.MUTABLE, Taken.READ_ONLY}) is Taken.MUTABLE_AND_READ_ONLY
    assert together({Taken.MUTABLE, Taken.CONST}) is Taken.MUTABLE
    assert together(set()) is Taken.MUTABLE
