"""One sweep of three axes: which variants are timed, and what is said of their times."""

from __future__ import annotations

from itertools import islice

from bench.volumes import BASE, MARCH, Row, volumes


def test_the_base_and_so_many_variants_of_march_are_timed_or_those_of_given_tags() -> None:
    for volume in islice(volumes(), 2):
        base, *drawn = (one.algorithm.name for one in volume.variants([], 5))
        assert (base, drawn) == (BASE, [MARCH] * 5)
        assert volume.cells == 512**3
    wave = next(volumes())
    assert [one.name.partition("__")[2] for one in wave.variants(["x16_y16_u1_n2_r2_s2"], 5)][1:] == [
        "march_x16_y16_u1_n2_r2_s2"
    ]


def test_a_row_gives_fractions_of_a_copy_and_names_other_bits() -> None:
    row = Row("wave", 512**3, 540.0, {"march_x16": 600.0, "naive_x64_y4": 1200.0}, ("march_x16",))
    head, fastest, _, odd = str(row).splitlines()
    assert head == "wave: copy 540.0 us; 2 variants"
    assert fastest.split() == ["600.0", "us", "0.900", "of", "copy", "223.7", "GCell/s", "march_x16"]
    assert odd.strip() == "OTHER BITS: march_x16"
