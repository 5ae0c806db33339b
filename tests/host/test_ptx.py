"""Inline PTX on the CPU run: it does what its own text says, and what is not known is refused."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

from gen.arch import Limits
from gen.dtypes import U32
from gen.emit.render import render
from gen.errors import CompileError
from gen.families import FAMILIES
from gen.families.base import Operand
from gen.families.expr import ONE
from gen.families.names import find_variant
from gen.paths import templates_root
from gen.proof.cases import cases_of
from gen.proof.host import HostKernel, HostRunner
from gen.proof.prover import prove, unsupported_extents
from gen.proof.ptx import PtxError, translated
from tests.fake_family import fake_variant
from tests.host.host_kernels import one_launch, run_text
from tests.host.service_kernels.given import SOURCE as SERVICE_KERNELS

OPERANDS = (Operand("in", "in", U32, ("n",)), Operand("out", "out", U32, ("n",)))
PLAN = one_launch(1, ONE, "in", "out")
WORDS = np.arange(100, 116, dtype=np.uint32)


def text_of(body: str) -> str:
    """A kernel of one thread, which writes 7 to each of 16 words before it comes to the body."""
    return f"""
extern "C" __global__ void NAME(const unsigned* in, unsigned* out) {{
  __shared__ __align__(16) unsigned ring[16];
  for (int k = 0; k < 16; ++k) out[k] = 7;
  for (int k = 0; k < 16; ++k) ring[k] = 9;
  const unsigned place = __cvta_generic_to_shared(ring);
  unsigned a = 1, b = 2, c = 3, d = 4;
  float f = 0.0f;
  double g = 0.0;
  unsigned long long l = 5, m = 0, policy = 0;
{body}
}}
"""


def run(cache: Path, body: str, limits: Limits | None = None) -> list[int]:
    """The words that it writes."""
    out = np.zeros(16, np.uint32)
    limits = limits or Limits.of("sm_90")
    run_text(cache, text_of(body), OPERANDS, PLAN, {"n": 16}, {"in": WORDS, "out": out}, limits=limits)
    return [int(word) for word in out]


STORES = 'asm volatile("st.global.u32 [%0], %1;" ::"l"(out), "r"(a) : "memory"); '
SHOW_RING = "for (int k = 0; k < 5; ++k) out[k] = ring[k];"
WAIT = 'asm volatile("cp.async.wait_all;" ::: "memory");\n'

EXECUTED = (
    (STORES, [1, 7]),
    (
        """
  asm("ld.global.nc.v4.u32 { %0, %1, %2, %3 }, [%4];" : "=r"(a), "=r"(b), "=r"(c), "=r"(d) : "l"(in + 4));
  out[0] = a; out[1] = b; out[2] = c; out[3] = d;""",
        [104, 105, 106, 107, 7],
    ),
    (
        """
  asm("ld.global.nc.v4.u32 { %3, %1, %2, %0 }, [%4];" : "=r"(a), "=r"(b), "=r"(c), "=r"(d) : "l"(in + 4));
  out[0] = a; out[1] = b; out[2] = c; out[3] = d;""",
        [107, 105, 106, 104, 7],
    ),
    (
        """
  asm("ld.global.ca.v2.b32 {%0,%1}, [ %2 ];" : "=r"(a), "=f"(f) : "l"(in + 2));
  out[0] = a; out[1] = __float_as_uint(f);""",
        [102, 103, 7],
    ),
    (
        """
  asm("ld.global.L1::no_allocate.u64 %0, [%1];" : "=l"(l) : "l"(in + 2));
  out[0] = l; out[1] = l >> 32;""",
        [102, 103, 7],
    ),
    (
        """
  asm("ld.global.f64 %0, [%1];" : "=d"(g) : "l"(in + 2));
  out[0] = __double2loint(g);""",
        [102, 7],
    ),
    (
        """
  asm volatile("st.global.v4.u32 [%0], { %1, %2, %3, %4 };"
      ::"l"(out), "r"(a), "r"(b), "r"(c), "r"(d) : "memory");""",
        [1, 2, 3, 4, 7],
    ),
    (
        """
  asm volatile("st.global.v4.u32 [%0], { %2, %1, %4, %4 };"
      ::"l"(out), "r"(a), "r"(b), "r"(c), "r"(d) : "memory");""",
        [2, 1, 4, 4, 7],
    ),
    (
        """
  asm volatile("st.global.cs.v2.u32 [%0], { %1, %2 };" ::"l"(out + 2), "r"(a), "r"(b), "r"(c) : "memory");""",
        [7, 7, 1, 2, 7],
    ),
    (
        """
  asm volatile("st.global.v2.u64 [%0], { %1, %2 };" ::"l"(out), "l"(l), "l"(l + 1) : "memory");""",
        [5, 0, 6, 0, 7],
    ),
    (
        """
  asm volatile("st.global.f64 [%0], %1;" ::"l"(out), "d"(1.0) : "memory");""",
        [0, 0x3FF00000, 7],
    ),
    (
        """
  asm volatile("st.release.gpu.global.u32 [%0], %1;" ::"l"(out + 1), "r"(b) : "memory");
  asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(c) : "l"(out + 1) : "memory");
  asm volatile("st.relaxed.gpu.global.u32 [%0], %1;" ::"l"(out), "r"(c + 3) : "memory");
  asm volatile("ld.relaxed.gpu.global.u32 %0, [%1];" : "=r"(d) : "l"(out + 3) : "memory");
  out[2] = d;""",
        [5, 2, 7, 7],
    ),
    (
        """
  asm volatile("st.relaxed.gpu.global.v2.u64 [%0], { %1, %2 };" ::"l"(out), "l"(l), "l"(l + 1) : "memory");
  asm volatile("ld.relaxed.gpu.global.v2.u64 { %1, %0 }, [%2];" : "=l"(l), "=l"(m) : "l"(out) : "memory");
  out[4] = static_cast<unsigned>(l), out[6] = static_cast<unsigned>(m);""",
        [5, 0, 6, 0, 6, 7, 5, 7],
    ),
    (
        """
  asm volatile("" : "+r"(a), "+l"(l), "+r"(b));
  out[0] = a, out[1] = b, out[2] = static_cast<unsigned>(l);""",
        [1, 2, 5, 7],
    ),
    (
        """
  asm("createpolicy.fractional.L2::evict_first.b64 %0, 0.25;" : "=l"(policy));
  asm volatile("st.global.L1::evict_last.L2::cache_hint.u32 [%0], %1, %2;"
      ::"l"(out), "r"(a), "l"(policy) : "memory");""",
        [1, 7],
    ),
    (
        """
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(place), "l"(in) : "memory");
"""
        + WAIT
        + SHOW_RING,
        [100, 101, 102, 103, 9, 7],
    ),
    (
        """
  asm volatile("cp.async.ca.shared.global.L2::128B [%0], [%1], %2;"
      ::"l"(static_cast<size_t>(place)), "l"(in), "n"(sizeof(l)) : "memory");
"""
        + WAIT
        + SHOW_RING,
        [100, 101, 9, 9, 9, 7],
    ),
    (
        """
  asm volatile("cp.async.ca.shared.global [%0], [%1], 16, %2;" ::"r"(place), "l"(in), "r"(4 * b) : "memory");
"""
        + WAIT
        + SHOW_RING,
        [100, 101, 0, 0, 9, 7],
    ),
    (
        """
  asm volatile (  // says one thing
      "cp.async.ca.shared.global "  /* in two parts */ "[%0], [%1], 4;" : : "r"(place + 4),
      "l"(in + (a ? 1 : 0))
      : "memory");
"""
        + WAIT
        + SHOW_RING,
        [9, 101, 9, 9, 9, 7],
    ),
    (
        r"""
#define STORE(value) \
  asm volatile( \
      "st.global.u32 [%0], %1;" ::"l"(out + 1), "r"(value) : "memory")
  if (a) STORE(b); else STORE(c);
#undef STORE""",
        [7, 2, 7],
    ),
    (
        """
  // asm("nothing");
  /* asm("nothing"); */
  asm volatile("" ::: "memory");
  out[0] = "asm('nothing');"[0];""",
        [97, 7],
    ),
)


@pytest.fixture(scope="module")
def executed(cache: Path) -> tuple[HostKernel, ...]:
    """All of them, built together."""
    made = [fake_variant(f"ptx{place}", OPERANDS, PLAN) for place in range(len(EXECUTED))]
    texts = {one.name: text_of(body).replace("NAME", one.name) for one, (body, _) in zip(made, EXECUTED, strict=True)}
    return HostRunner(Limits.of("sm_90"), cache=cache, text=lambda one: texts[one.name]).load(made)


@pytest.mark.parametrize("place", range(len(EXECUTED)))
def test_an_instruction_does_what_its_text_says(executed: tuple[HostKernel, ...], place: int) -> None:
    out = np.zeros(16, np.uint32)
    executed[place].run({"n": 16}, {"in": WORDS, "out": out})
    _, expected = EXECUTED[place]
    assert out.tolist()[: len(expected)] == expected


STORE = '"st.global.u32 [%0], %1;" ::"l"(out), "r"(a) : "memory"'


@pytest.mark.parametrize(
    ("statement", "reason"),
    [
        ('"mov.u32 %0, %%laneid;" : "=r"(a)', "`mov.u32 %0, %%laneid;`: the CPU run does not know this form of PTX"),
        ('"ld.volatile.global.u32 %0, [%1];" : "=r"(a) : "l"(in)', "does not know this form"),
        ('"ld.global.u16 %0, [%1];" : "=r"(a) : "l"(in)', "does not know this form"),
        ('"ld.u32 %0, [%1];" : "=r"(a) : "l"(in)', "does not know this form"),
        ('"cp.async.wait_all; cp.async.commit_group;" ::: "memory"', "one instruction that ends in a semicolon"),
        ('"st.global.u32 [%0], %1" ::"l"(out), "r"(a) : "memory"', "one instruction that ends in a semicolon"),
        ('"@p st.global.u32 [%0], %1;" ::"l"(out), "r"(a) : "memory"', "one instruction"),
        ('"st.global.u32 [%0], %1;" ::"l"(out), "r"(a)', 'must clobber "memory"'),
        ('"cp.async.commit_group;" ::', 'must clobber "memory"'),
        ('"cp.async.wait_group %0;" ::"n"(0) : "cc"', 'must clobber "memory"'),
        ('"st.global.u64 [%0], %1;" ::"l"(out), "r"(a) : "memory"', "%1 must be an operand with the constraint l"),
        ('"st.global.b64 [%0], %1;" ::"l"(out), "r"(a) : "memory"', "%1 must be an operand with the constraint l or d"),
        ('"st.global.f32 [%0], %1;" ::"l"(out), "r"(a) : "memory"', "%1 must be an operand with the constraint f"),
        ('"st.global.u32 [%0], %1;" ::"r"(place), "r"(a) : "memory"', "%0 must be an operand with the constraint l"),
        ('"st.global.u32 [%0], %2;" ::"l"(out), "r"(a) : "memory"', "the statement has no operand %2"),
        ('"st.global.u32 [%0], 1;" ::"l"(out) : "memory"', "1 must be an operand"),
        ('"st.global.u32 [%0 + 4], %1;" ::"l"(out), "r"(a) : "memory"', "must be an address that is an operand"),
        ('"st.global.v2.u32 [%0], %1;" ::"l"(out), "r"(a) : "memory"', "as many operands as are moved, 2"),
        ('"st.global.u32 [%0], { %1 };" ::"l"(out), "r"(a) : "memory"', "as many operands as are moved, 1"),
        ('"st.global.v2.u32 [%0], { %1, %1, %1 };" ::"l"(out), "r"(a) : "memory"', "as many operands as are moved, 2"),
        ('"st.global.v4.u64 [%0], { %1, %1, %1, %1 };" ::"l"(out), "l"(l) : "memory"', "at most 16 bytes, not 32"),
        ('"st.global.L2::cache_hint.u32 [%0], %1;" ::"l"(out), "r"(a) : "memory"', "does not take 2 operands"),
        ('"st.global.L2::cache_hint.u32 [%0], %1, %2;" ::"l"(out), "r"(a), "r"(b) : "memory"', "the constraint l"),
        ('"ld.global.nc.u32 %0, [%2];" : "=r"(a), "=r"(b) : "l"(in)', "must be what the instruction writes"),
        ('"ld.global.nc.u32 %1, [%2];" : "=r"(a) : "r"(b), "l"(in)', "must be what the instruction writes"),
        ('"ld.global.nc.v2.u32 { %0, %0 }, [%1];" : "=r"(a) : "l"(in)', "must be what the instruction writes"),
        ('"cp.async.ca.shared.global [%0], [%1], %2;" ::"r"(place), "l"(in), "r"(a) : "memory"', "the constraint n"),
        ('"cp.async.ca.shared.global [%1], [%0], 4;" ::"r"(place), "l"(in) : "memory"', "%0 must be an operand"),
        ('"createpolicy.fractional.L2::evict_last.b64 %0, 0.0;" : "=l"(l)', "0.0 must be a fraction"),
        ('"createpolicy.fractional.L2::evict_last.b64 %0, 1.5;" : "=l"(l)', "1.5 must be a fraction"),
        ('"applypriority.global.L2::evict_normal [%0], 64;" ::"l"(in) : "memory"', "must be 128, not 64"),
        ('"st.global.u32 [%0], %1;" ::"l"(out), "+r"(a) : "memory"', '`"+r"(a)` must be one of the constraints'),
        ('"" : "=r"(a)', 'must be one of the constraints "+r", "+l", "+f", "+d"'),
        ('"st.relaxed.gpu.global.v2.u64 [%0], %1;" ::"l"(out), "l"(l) : "memory"', "as many operands as are moved, 2"),
        ('"st.relaxed.gpu.global.v4.u64 [%0], { %1, %1, %1, %1 };" ::"l"(out), "l"(l) : "memory"', "at most 16 bytes"),
        ('"ld.global.nc.u32 %0, [%1];" : "r"(a) : "l"(in)', 'must be one of the constraints "=r", "=l", "=f", "=d"'),
        ('"ld.global.nc.u32 %[a], [%1];" : [a] "=r"(a) : "l"(in)', "must be one of the constraints"),
        ('TEXT "st.global.u32 [%0], %1;" ::"l"(out), "r"(a) : "memory"', "must be a text in quotes"),
        ('"ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(a) : "l"(in)', 'must clobber "memory"'),
        ('"ld.release.gpu.global.u32 %0, [%1];" : "=r"(a) : "l"(in) : "memory"', "does not know this form"),
        ('"st.acquire.gpu.global.u32 [%0], %1;" ::"l"(out), "r"(a) : "memory"', "does not know this form"),
        ('"st.release.cta.global.u32 [%0], %1;" ::"l"(out), "r"(a) : "memory"', "does not know this form"),
        ("", "must be a text in quotes"),
        (f"{STORE} : label", "must be a text in quotes, outputs, inputs and clobbers"),
        (f"\n#ifdef X\n{STORE}\n#endif\n", "must have no directives"),
    ],
)
def test_what_cannot_be_executed_is_refused(statement: str, reason: str) -> None:
    with pytest.raises(PtxError, match=re.escape(reason)) as caught:
        translated(f"// a text\n\nvoid f() {{\n  asm volatile({statement});\n}}\n")
    assert caught.value.line == 4


@pytest.mark.parametrize(
    ("start", "reason"),
    [
        ("asm goto (", "nothing but `volatile`"),
        ("asm __volatile__ (", "nothing but `volatile`"),
        (f"asm({STORE}", "does not close"),
        (f"__asm__({STORE});", "`__asm__` is no word of CUDA"),
        (f"__asm({STORE});", "`__asm` is no word of CUDA"),
    ],
)
def test_a_statement_that_does_not_begin_or_end_as_it_must_is_refused(start: str, reason: str) -> None:
    with pytest.raises(PtxError, match=reason):
        translated(start)


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        ('asm("ld.global.nc.u32 %0, [%1];" : "=r"(l) : "l"(in));', "must be as its constraint says"),
        ('asm("ld.global.nc.f32 %0, [%1];" : "=f"(a) : "l"(in));', "must be as its constraint says"),
        ('asm volatile("st.global.u32 [%0], %1;" ::"l"(out), "r"(in) : "memory");', "must be as its constraint says"),
        ('asm volatile("cp.async.cg.shared.global [%0], [%1], 8;" ::"r"(place), "l"(in) : "memory");', "cg copies 16"),
        ('asm volatile("cp.async.ca.shared.global [%0], [%1], %2;" ::"r"(place), "l"(in), "n"(2) : "memory");',
         "copies 4, 8 or 16 bytes"),
        ('asm volatile("cp.async.wait_group %0;" ::"n"(-1) : "memory");', "takes no negative number"),
        ('asm volatile("cp.async.wait_group %0;" ::"n"(a) : "memory");', "not usable in a constant expression"),
        ('\n\nasm volatile("bar.sync 0;" ::: "memory");', r"fake_made__fake\.cu:13: `bar\.sync 0;`: the CPU run does"),
    ],
)  # fmt: skip
def test_the_message_says_what_the_text_has_wrong(cache: Path, body: str, reason: str) -> None:
    with pytest.raises(CompileError, match=reason):
        run(cache, body)


def test_every_line_keeps_its_place() -> None:
    in_two_lines = STORE.replace(" : ", "  // it (writes\n : ")
    text = f"first;\nasm volatile(\n    {in_two_lines}\n);  // behind\nlast;\n"
    lines = translated(text).split("\n")
    assert len(lines) == text.count("\n") + 1
    assert lines[0] == "first;"
    assert "store_global" in lines[1]
    assert [*map(str.strip, lines[2:])] == ["", "", ";  // behind", "last;", ""]


def test_instructions_are_those_of_the_architecture_that_is_played(cache: Path) -> None:
    guarded = f"#if __CUDA_ARCH__ >= 800\n{WAIT}a = 80;\n#endif\n{STORES}"
    assert run(cache, guarded, Limits.of("sm_80"))[0] == 80
    assert run(cache, guarded, Limits.of("sm_75"))[0] == 1
    with pytest.raises(CompileError, match="wait_all in this form needs sm_80 or later"):
        run(cache, guarded.replace(">= 800", ">= 750"), Limits.of("sm_75"))


GUARD = re.compile(r"^#if __CUDA_ARCH__ >= \d+$")


def test_no_text_tells_the_cpu_run_from_a_gpu() -> None:
    """Only architectures are told apart: what stands in a kernel is what the CPU runs."""
    texts = {path.name: path.read_text() for path in Path(str(templates_root())).rglob("*.jinja")} | {
        "kernels.cu": SERVICE_KERNELS
    }
    naming = {name: [line for line in text.split("\n") if "__CUDA" in line] for name, text in texts.items()}
    assert len(texts) > 40
    assert any(naming.values())
    for name, lines in naming.items():
        assert all(map(GUARD.match, lines)), f"{name}: {lines}"


def test_what_older_architectures_run_is_proven_too(cache: Path) -> None:
    limits = Limits.of("sm_75")
    names = (f"transpose_10_b32__vector_tile_v{size}_x16_g16_swz_ocol_ldel_stel" for size in (4, 8, 16))
    made = [find_variant(FAMILIES, name, {}) for name in names]
    cases = [
        case for case in cases_of(made[0].family, made[0].spec) if unsupported_extents(made[0], case, limits) is None
    ]
    for proof in prove(HostRunner(limits, cache=cache, text=render), made, cases[::8]):
        assert proof.failure is None, str(proof.failure)
        assert proof.cases > 1
