"""Architectures: their names are read once, and an unknown one gets the figures of the nearest that is known."""

from __future__ import annotations

from dataclasses import asdict

import pytest
from cuda.bindings import driver as bindings
from hypothesis import assume, given
from hypothesis import strategies as st

from gen.arch import KNOWN, Architecture, Attribute, Limits, architectures_of, nearest
from gen.errors import UnknownNameError

ARCHITECTURES = [known.arch for known in KNOWN]
FIRST = {"": 50, "a": 90, "f": 100}  # the compute capabilities, without their point, from which each suffix is there


@st.composite
def architectures(draw: st.DrawFn) -> Architecture:
    suffix = draw(st.sampled_from(sorted(FIRST)))
    return Architecture(divmod(draw(st.integers(FIRST[suffix], 200)), 10), suffix)


@given(architectures())
def test_a_name_is_read_as_it_is_written(arch: Architecture) -> None:
    assert Architecture.parse(str(arch)) == arch
    assert Limits.of(str(arch)).arch == str(arch)
    assert Limits.of(str(arch)).compute_capability == arch.compute_capability
    assert str(arch) in architectures_of([10 * arch.compute_capability[0] + arch.compute_capability[1]])


@given(st.text(max_size=8) | st.from_regex(r"(sm_)?-?[0-9]{0,4}[ a-g]?", fullmatch=True))
def test_whatever_else_is_refused_and_the_rule_named(text: str) -> None:
    number, suffix = text.removeprefix("sm_").rstrip("af"), text.lstrip("sm_0123456789")
    digits = number.isascii() and number.isdecimal() and 2 <= len(number) <= 3 and number[0] != "0"
    assume(not (text == f"sm_{number}{suffix}" and digits and suffix in FIRST and int(number) >= FIRST[suffix]))
    with pytest.raises(UnknownNameError, match="must be sm_ and the digits of a compute capability"):
        Limits.of(text)


@pytest.mark.parametrize(
    "text", ["sm_9", "sm_090", "sm_49", "sm_80a", "sm_90f", "sm_90aa", "sm_90 ", "sm_९०", "SM_90", "90"]
)
def test_names_that_look_right_are_refused(text: str) -> None:
    with pytest.raises(UnknownNameError):
        Limits.of(text)


@given(architectures())
def test_an_unknown_architecture_gets_the_figures_of_the_nearest(arch: Architecture) -> None:
    found = Limits.of(str(arch))
    assert found.figures_of in ARCHITECTURES
    assert {**asdict(Limits.of(found.figures_of)), "arch": str(arch)} == asdict(found)
    known = str(Architecture(arch.compute_capability)) in ARCHITECTURES
    assert (found.stand_in is None) == known
    assert found.stand_in is None or (str(arch) in found.stand_in and found.figures_of in found.stand_in)
    assert found.figures_of == str(Architecture(arch.compute_capability)) or not known
    major, minor = arch.compute_capability
    of_major = [one for one in map(Architecture.parse, ARCHITECTURES) if one.compute_capability[0] == major]
    if of_major:  # the same generation, whatever is near in number
        taken = nearest(arch).compute_capability
        assert taken[0] == major
        assert abs(taken[1] - minor) == min(abs(one.compute_capability[1] - minor) for one in of_major)


@pytest.mark.parametrize(
    ("arch", "taken"),
    [
        ("sm_61", "sm_70"), ("sm_88", "sm_89"), ("sm_95", "sm_90"), ("sm_101", "sm_100"), ("sm_115", "sm_110"),
        ("sm_130", "sm_121"),
    ],
)  # fmt: skip
def test_of_two_that_are_as_near_the_newer_is_taken(arch: str, taken: str) -> None:
    assert Limits.of(arch).figures_of == taken


def test_attributes_have_the_drivers_numbers() -> None:
    for attribute in Attribute:
        assert getattr(bindings.CUdevice_attribute, f"CU_DEVICE_ATTRIBUTE_{attribute.name}") == attribute


H200 = {
    Attribute.COMPUTE_CAPABILITY_MAJOR: 9,
    Attribute.COMPUTE_CAPABILITY_MINOR: 0,
    Attribute.MULTIPROCESSOR_COUNT: 132,
    Attribute.CLOCK_RATE: 1_980_000,
    Attribute.MEMORY_CLOCK_RATE: 3_201_000,
    Attribute.GLOBAL_MEMORY_BUS_WIDTH: 6144,
    Attribute.L2_CACHE_SIZE: 62_914_560,
    Attribute.MAX_SHARED_MEMORY_PER_BLOCK_OPTIN: 232_448,
}


def test_a_device_says_itself_what_it_has() -> None:
    found = Limits.of_device("NVIDIA H200", lambda which: H200.get(which, 0))
    assert (found.arch, found.figures_of, found.stand_in) == ("sm_90", "sm_90", None)
    assert found.clock_hz == 1.98e9
    assert found.memory_bytes_per_second == pytest.approx(4917e9, rel=1e-3)
    assert found.l2_bytes == 60 << 20
    assert found.needed_bytes_in_flight == 48 * 1024  # more than an H100
    assert found.registers_per_multiprocessor == 65536  # of the table: it was not told
    other = Limits.of_device("NVIDIA H2000", lambda which: {**H200, Attribute.MULTIPROCESSOR_COUNT: 20}.get(which, 0))
    assert (other.multiprocessors, other.needed_bytes_in_flight) == (20, 32 * 1024)


def test_an_integrated_gpu_says_nothing_of_its_memory() -> None:
    said = {Attribute.COMPUTE_CAPABILITY_MAJOR: 8, Attribute.COMPUTE_CAPABILITY_MINOR: 7, Attribute.INTEGRATED: 1}
    said |= {Attribute.MEMORY_CLOCK_RATE: 1_300_000, Attribute.GLOBAL_MEMORY_BUS_WIDTH: 256}  # that of the GPU
    found = Limits.of_device("Orin", lambda which: said.get(which, 0))
    assert found.memory_bytes_per_second == Limits.of("sm_87").memory_bytes_per_second


def test_a_device_of_an_architecture_to_come_is_taken_as_it_says_it_is() -> None:
    said = {**H200, Attribute.COMPUTE_CAPABILITY_MAJOR: 13, Attribute.MAX_SHARED_MEMORY_PER_BLOCK_OPTIN: 300_000}
    found = Limits.of_device("A GPU to come", lambda which: said.get(which, 0))
    assert (found.arch, found.shared_bytes_per_block, found.figures_of) == ("sm_130", 300_000, "sm_121")
    assert found.stand_in is not None
    assert found.has_clusters


def test_features_come_with_compute_capabilities() -> None:
    for feature, first in (("has_clusters", 90), ("has_warp_sums", 80), ("has_asynchronous_copies", 80)):
        for number in (70, 75, 80, 86, 87, 89, 90, 100, 103, 110, 120, 121):
            assert getattr(Limits.of(f"sm_{number}"), feature) == (number >= first), feature
    assert Limits.of("sm_90a").has_clusters
    assert Limits.of("sm_100f").has_clusters
