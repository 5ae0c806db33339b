"""Changes to the templates of systems."""

from __future__ import annotations

from gen.families import FAMILIES
from gen.families.names import find_family
from gen.families.system.family import SAMPLES
from gen.proof.failures import UNTOUCHED, WRONG
from tests.mutants.change import (
    IN_FLIGHT,
    MISALIGNED,
    OUTSIDE_READ,
    OUTSIDE_WRITE,
    OVERFLOW,
    RACE,
    UNINITIALISED,
    Mutant,
    Unchanged,
)

NAIVE, NEAR, SUMS = "system/naive.cu.jinja", "system/_near.cu.jinja", "system/_sums.cu.jinja"
MARCH = "system/march.cu.jinja"
POINTS, UPDATES = "system/_points.cu.jinja", "system/_updates.cu.jinja"
_FAMILY = find_family(FAMILIES, "system")
ON_WAVE = f"system_{_FAMILY.catalogue[0].label}__naive_x32_y2"
ON_REACTION = f"system_{_FAMILY.extra_proof_specs['naive'].label}__naive_x32_y2"
ON_SURVEY = f"system_{SAMPLES[-1].label}__naive_x32_y2"
ON_MARCH = f"system_{SAMPLES[0].label}__march_x8_y4_u2_n1_r2_s2"
MUTANTS = (
    Mutant("system: no guard [1]", ON_WAVE, NAIVE, "", "", (OUTSIDE_READ, OUTSIDE_WRITE), at="guard"),
    Mutant("system: guard of columns one off [2]", ON_WAVE, NAIVE, "col >= cols", "col > cols",
           (OUTSIDE_READ, OUTSIDE_WRITE, RACE), at="guard"),
    Mutant("system: fields change one after the other", ON_REACTION, NAIVE,
           '= {{ wide_cell(element, field ~ "_in[here]") }};\n{% endfor %}\n{% if text',
           '= {{ wide_cell(element, field ~ "_in[0]") }};\n{% endfor %}\n{% if text', WRONG),
    Mutant("system: all cells are taken to lie inside", ON_REACTION, NAIVE, "inside", "true",
           (WRONG, OUTSIDE_READ), at="inside"),
    Mutant("system: rows of the next plane", ON_REACTION, NAIVE, "line - plane * rows", "line - plane * cols",
           (WRONG, OUTSIDE_READ)),
    Mutant("system: a plane is as long as a row", ON_REACTION, NAIVE, "(z * rows + y) * cols", "(z * cols + y) * cols",
           (WRONG, OUTSIDE_READ)),
    Mutant("system: blocks overlap", ON_WAVE, NAIVE, "tiles_across) * kBlockY", "tiles_across) * 1",
           (RACE, UNTOUCHED, WRONG)),
    Mutant("system: frozen cells change", ON_WAVE, UPDATES, "{{ update.field }}_in[here];",
           "0 * {{ update.field }}_in[here];", WRONG),
    Mutant("system: nothing is copied without a step", ON_WAVE, UPDATES, "i < cells)", "i < cells - 1)",
           (WRONG, UNTOUCHED)),
    Mutant("system: a term of a sum replaces those before", ON_WAVE, SUMS, "cells({{ tap.offset }}), sum)",
           "cells({{ tap.offset }}), 0)", WRONG),
    Mutant("system: products and sums rounded apart", ON_REACTION, SUMS,
           "({{ tap.weight }}, cells({{ tap.offset }}), sum)",
           "(1.0f, {{ tap.weight }} * cells({{ tap.offset }}), sum)", WRONG),
    Mutant("system: the value outside is 0", ON_REACTION, NEAR, "return {{ cval }};", "return 0;", WRONG),
    Mutant("system: the last cell of an axis lies outside", ON_REACTION, NEAR, ">= {{ axis }})", ">= {{ axis }} - 1)",
           WRONG),
    Mutant("system: points before the first cell lie inside", ON_SURVEY, POINTS, "point[{{ loop.index0 }}] < 0 || ", "",
           (WRONG, OUTSIDE_READ, OUTSIDE_WRITE, OVERFLOW)),
    Mutant("system: points past the last cell lie inside", ON_SURVEY, POINTS, ">= {{ axis }})", "> {{ axis }})",
           (WRONG, OUTSIDE_READ, OUTSIDE_WRITE)),
    Mutant("system: every source is the first in its cell", ON_SURVEY, POINTS, "before < 0 ? own : -1", "own",
           (RACE, WRONG)),
    Mutant("system: of the sources in a cell only the first counts", ON_SURVEY, POINTS, "= links[2 * source + 1]",
           "= count", WRONG),
    Mutant("system: sources in a cell are added from the last on", ON_SURVEY, POINTS,
           'wide_cell(element, "wavelets[step * count + source]")',
           'wide_cell(element, "wavelets[step * count + (links[2 * source + 1] < count ? links[2 * source + 1] : i)]")',
           WRONG),
    Mutant("system: every step adds the first numbers", ON_SURVEY, POINTS, "wavelets[step * count",
           "wavelets[0 * count", WRONG),
    Mutant("system: no barrier between planes", ON_MARCH, MARCH, "", "", (RACE, UNINITIALISED), at="barrier"),
    Mutant("system: a plane is used before it has come", ON_MARCH, MARCH, '"n"(kAhead - 1)', '"n"(kAhead)', IN_FLIGHT),
    Mutant("system: a plane comes to where one is read", ON_MARCH, MARCH,
           "slot > kBack ? slot - kBack - 1 : slot + kAhead", "own_thread * 0 + slot", (RACE, WRONG, IN_FLIGHT)),
    Mutant("system: the plane that is written is the one after", ON_MARCH, MARCH,
           "slot >= kBack ? slot - kBack : slot - kBack + kRing", "(slot + 2) % kRing", (WRONG, IN_FLIGHT)),
    Mutant("system: sums of fields of another reach are of a later plane", ON_MARCH, MARCH,
           "slot >= {{ window.behind }} ? slot - {{ window.behind }} : slot - {{ window.behind }} + kRing", "slot",
           WRONG),
    Mutant("system: a plane's terms go to the sum of the plane behind", ON_MARCH, MARCH,
           '"held[" ~ (loop.index0 - 1) ~ "]"', '"held[" ~ (loop.index0 - 2) % function.held ~ "]"', WRONG),
    Mutant("system: sums go on from the last block's", ON_MARCH, MARCH,
           'zero if loop.last else', '("held[0]" if zero else zero) if loop.last else', WRONG),
    Mutant("system: planes are written before their sums are complete", ON_MARCH, MARCH,
           "turn < kFront + kBack) continue", "turn < kFront + kBack - 1) continue",
           (WRONG, RACE, OUTSIDE_READ, OUTSIDE_WRITE)),
    Mutant("system: rows past the last are written", ON_MARCH, MARCH, "j >= own_rows", "false",
           (OUTSIDE_READ, OUTSIDE_WRITE, RACE, WRONG), at="guard"),
    Mutant("system: cells past the last are written", ON_MARCH, MARCH, "i >= own_cols", "false",
           (OUTSIDE_READ, OUTSIDE_WRITE, RACE, WRONG)),
    Mutant("system: vectors past the end of a row", ON_MARCH, MARCH, "from_col < cols", "true",
           (OUTSIDE_READ, WRONG), at="vectors"),
    Mutant("system: vectors between multiples of 16 bytes", ON_MARCH, MARCH, "addresses % 16 == 0", "true",
           (MISALIGNED, OUTSIDE_READ, WRONG)),
    Mutant("system: other fields come a plane late", ON_MARCH, MARCH, "< read_planes) look_ahead(own_place)",
           "< read_planes) look_ahead(own_place - plane_cells)", WRONG),
    Mutant("system: cells change that are frozen, and no others", ON_MARCH, MARCH, '"(kept_"', '"!(kept_"', WRONG),
    Mutant("system: planes behind the last are not brought", ON_MARCH, MARCH, "turn + kAhead < read_planes",
           "turn + kAhead < read_planes - kBack", WRONG),
    Mutant("system: cells outside are not filled", ON_MARCH, MARCH, "slot < kRing; ++slot) fill_plane",
           "slot < 0; ++slot) fill_plane", UNINITIALISED),
    Mutant("system: a row begins where the last ended", ON_MARCH, MARCH, "j * cols;", "j * (cols - 1);",
           (WRONG, RACE, UNINITIALISED)),
    Mutant("system: traces of every step in one row", ON_SURVEY, POINTS, "traces[step * count", "traces[0 * count",
           (WRONG, UNTOUCHED)),
)  # fmt: skip

LARGE = (
    Mutant("system: cells counted in 31 bits", ON_WAVE, NAIVE, "const long long here = {{ line_of }} * cols + col;",
           "const int here = int({{ line_of }}) * int(cols) + int(col);", OVERFLOW),
    Mutant("system: cells around in 32 bits", ON_WAVE, NAIVE, '"here + y * cols + x"',
           '"unsigned(here + y * cols + x)"', (WRONG, UNTOUCHED)),
    Mutant("system: places of planes in 32 bits", ON_MARCH, MARCH, "long long own_place = (",
           "unsigned own_place = unsigned(", (WRONG, UNTOUCHED)),
)  # fmt: skip

UNCHANGED: tuple[Unchanged, ...] = ()
