"""Compiling in processes: as fast as there are cores, and one bad source costs one source."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from pathlib import Path

import pytest

from gen.errors import CompileError, RunError
from gen.toolchain.compiled import Compiled
from gen.toolchain.farm import CompileFarm


@dataclass(frozen=True)
class Obedient:
    """Does what a source says: `refuse`, `crash`, `hang`, or nothing."""

    version: str = "obedient 1.0"
    options: str = "-O"

    def compile(self, name: str, text: str, arch: str) -> Compiled:
        if text == "refuse":
            raise CompileError(name, f"{name}.cu(7): error", Path("kept.cu"))
        if text == "crash":
            os.abort()
        if text == "hang":
            time.sleep(3600)
        return Compiled(name, arch, f"{os.getpid()}".encode(), {}, 2.5)


@dataclass(frozen=True)
class StillBorn(Obedient):
    """Ends every process as soon as that has it."""

    def __setstate__(self, _: object) -> None:
        os._exit(3)


def test_every_source_gets_its_own_code_from_several_processes() -> None:
    with CompileFarm(Obedient(), width=2) as farm:
        assert (farm.version, farm.options, farm.width) == ("obedient 1.0", "-O", 2)
        found = [future.result(300) for future in [farm.submit(f"k{n}", "", "sm_90") for n in range(40)]]
    assert [one.name for one in found] == [f"k{n}" for n in range(40)]
    assert {one.arch for one in found} == {"sm_90"}
    assert {one.compile_ms for one in found} == {2.5}
    assert len({one.cubin for one in found}) == 2


@pytest.mark.parametrize(
    ("text", "says"),
    [("refuse", "error"), ("crash", "the process that compiles died of it"), ("hang", "did not end within 1 s")],
)
def test_a_bad_source_costs_itself_alone(text: str, says: str) -> None:
    with CompileFarm(Obedient(), width=1, longest=1 if text == "hang" else 60) as farm:
        futures = [farm.submit(f"k{n}", text if n == 2 else "", "sm_90") for n in range(6)]
        for number, future in enumerate(futures):
            if number == 2:
                with pytest.raises(CompileError, match=says) as caught:
                    future.result(300)
                assert caught.value.subject == "k2"
                assert says in caught.value.log
            else:
                assert future.result(300).name == f"k{number}"


def test_closing_ends_what_is_being_compiled_and_what_waits() -> None:
    farm = CompileFarm(Obedient(), width=1)
    futures = [farm.submit(f"k{n}", "hang", "sm_90") for n in range(4)]
    while not futures[0].running():
        time.sleep(0.01)
    farm.close()
    assert all("was closed" in str(future.exception(0)) for future in futures)  # none was waited for
    with pytest.raises(RunError, match="was closed"):
        farm.submit("k", "", "sm_90")


def test_a_compiler_that_ends_every_process_is_an_error_in_words() -> None:
    with CompileFarm(StillBorn(), width=1) as farm:
        futures = [farm.submit(f"k{n}", "", "sm_90") for n in range(3)]
        for future in futures:
            with pytest.raises(RunError, match="ended before it was ready"):
                future.result(300)


def test_what_is_given_up_before_it_begins_is_not_compiled() -> None:
    with CompileFarm(Obedient(), width=1) as farm:
        first = farm.submit("k", "", "sm_90")
        later = [farm.submit(f"k{n}", "", "sm_90") for n in range(20)]
        given_up = [future for future in later if future.cancel()]
        first.result(300)
        assert all(future.result(300) for future in later if future not in given_up)
