"""How commands end where something is wrong: the status, and one message without a traceback."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from typer.main import get_group

import gen
from gen.cli.app import app
from gen.emit.folder import holding
from gen.families import FAMILIES
from gen.families.names import find_variant
from gen.paths import how_to_install
from tests.host.cli.command import CHECKOUT, run, start

COMMANDS = get_group(app).commands
BAD_USAGE = [
    (("list", "reductoin"), "Did you mean reduction"),
    (("render", "reduceShf"), "Did you mean reduceShfl"),
    (("render", "reduction_sum_f32"), "FAMILY_SPEC__ALGORITHM_TAG"),
    (("render", "reduction_sum_f64__grid_tpb128_u1_v4_bpm1"), "vec_bytes 4 is smaller than one f64"),
    (("render", "reduction_sum_f32__gird_tpb128"), "grid"),
    (("render", "reduction_sum_f32__grid_tpb100_u1_v4_bpm1"), "tpb128"),
    (("render", "transpose_10_b32__tiled_t64_r16_p0_u4"), "shared memory"),
    (("render", "stencil_heat_00000000_f32__naive_x32_y2_u1"), "stencil_heat"),
    (("prove", "reduction_sum_f65"), "(got 'reduction_sum_f65'). Did you mean reduction_sum_f64?"),
    (("prove", "TRANSPOSE_0312_B16"), "or a spec, FAMILY_LABEL, such as reduction_sum_f32 (got 'TRANSPOSE_0312_B16')"),
    (("prove", "transposeSmmem"), "Did you mean transposeSmem"),
    (("resources", "transpose_0312_b16"), "gen show transpose_0312_b16 lists variants of it, such as"),
    (("prove", "transpos"), "Did you mean transpose"),
    (("prove", "--seed", "-1"), "--seed"),
    (("tune", "--arch", "sm_12"), "sm_90"),
    (("tune", "--arch", "sm_70"), "sm_75"),
    (("show", "reduction_sum_f32", "--arch", "sm_50"), "knows: sm_75"),
    (("ladder", "foo"), "must be one of reduction, transpose, stencil, probe (got 'foo')"),
    (("ladder", "system"), "must have kernels of the literature: reduction, transpose, stencil, probe (got system)"),
    (("doctor", "--home", __file__), "must be a folder"),
    (("render", "reduceShfl", "--arch", "sm_9"), "must be sm_ and the digits"),
    (("generate", "--home", __file__), "must be a folder"),
    (("generate", "--all"), "--home DIR"),
    (("--family", "no.such:Thing", "list"), "no.such:Thing"),
    (("--family", "gen.errors:GenError", "list"), "gen.errors:GenError"),
    (("nonsense",), "nonsense"),
    (("generate", "--nonsense"), "--nonsense"),
]


@pytest.mark.parametrize(("arguments", "says"), BAD_USAGE, ids=lambda value: " ".join(value)[-60:])
def test_bad_usage_ends_with_2_and_says_what_would_do(arguments: tuple[str, ...], says: str) -> None:
    shown = run(*arguments)
    assert shown.status == 2
    assert shown.out == ""
    assert says in shown.err


def test_a_variable_of_the_shell_that_is_not_set_is_no_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Which a path of no letters would be: the current one."""
    monkeypatch.chdir(tmp_path)
    commands = [name for name, one in COMMANDS.items() if any("--home" in option.opts for option in one.params)]
    assert len(commands) >= 10
    says = "error: --home must name a folder (got ''). --home . is the current one\n"
    for command in commands:
        shown = run(command, "--home", "")
        assert (shown.status, shown.err) == (2, says), command
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("content", ["{", "[]", '{"schema": 9}', '{"schema": 1, "winners": [{"device": 1}]}', "\x00"])
def test_a_corrupt_file_of_winners_is_named(home: Path, content: str) -> None:
    home.mkdir()
    (home / "tuned.json").write_text(content)
    shown = run("generate")
    assert shown.status == 1
    assert "tuned.json" in shown.err


def test_a_winner_that_there_is_not_is_named(home: Path) -> None:
    home.mkdir()
    winner = {"device": "H100", "spec": "s", "shape": "any", "variant": "reduction_sum_f32__grid_tpb7"}
    (home / "tuned.json").write_text(json.dumps({"schema": 1, "winners": [winner]}))
    shown = run("generate")
    assert shown.status == 1
    assert "tuned.json" in shown.err
    assert "tpb7" in shown.err


@pytest.mark.parametrize("content", ["{", '{"schema": 1, "specs": {"stencil_mine_0_f32": {"weights": 7}}}'])
def test_a_corrupt_file_of_specs_ends_in_a_message(home: Path, content: str) -> None:
    home.mkdir()
    (home / "specs.json").write_text(content)
    shown = run("render", "stencil_mine_0_f32__naive_x32_y2_u1")
    assert shown.status in (1, 2)
    assert shown.err.startswith("error: ")
    assert run("render", "reduceShfl").status == 0


@pytest.mark.parametrize("command", ["generate", "prove"])
def test_a_folder_that_cannot_be_made_is_named(command: str) -> None:
    shown = run(command, "--home", f"{__file__}/below")
    assert shown.status == 1
    assert "below" in shown.err


def test_what_names_another_folder_is_the_option_that_named_this_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for listed in ("gen.store.folder.base_of_catalogue", "gen.emit.folder.all_of_catalogue"):
        monkeypatch.setattr(listed, lambda _: (find_variant(FAMILIES, "reduceShfl", {}),))
    (tmp_path / "file").touch()
    says = "Name another folder with --home or $GEN_HOME"
    for options in (["--all"], []):
        shown = run("generate", *options, "--home", tmp_path / "file" / "below")
        assert shown.status == 1
        assert shown.err.endswith(f" cannot be written (got Not a directory). {says}\n")


def test_a_folder_that_takes_no_lock_says_what_names_another(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(gen.GenError, match=r"--home or \$GEN_HOME"), holding(tmp_path / "file" / "lock"):
        pass


def test_ctrl_c_ends_with_130(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("gen.store.folder.base_of_catalogue", interrupted)
    stopped = run("generate")
    assert (stopped.status, stopped.err) == (130, "Stopped.\n")


def test_little_is_loaded_before_ctrl_c_is_looked_out_for() -> None:
    code = "import sys; before = set(sys.modules); import gen.cli; print(*sorted({*sys.modules} - before))"
    done = subprocess.run([sys.executable, "-c", code], cwd=CHECKOUT, capture_output=True, text=True, check=True)
    assert not {"typing", "re", "pathlib", "multiprocessing", "gen.errors"} & {*done.stdout.split()}


def test_ctrl_c_in_a_rehearsal_says_what_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody waits for threads and processes that have begun something; they end with the command."""

    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("gen.gpu.device.find_gpu", lambda _index=0: None)
    monkeypatch.setattr("gen.proof.verdicts.Host.verdicts", interrupted)
    for command in (("tune", "transpose_10_b32"), ("prove", "reduceShfl")):
        stopped = run(*command)
        assert stopped.status == 130
        assert "Stopped. What was compiled and built is kept" in stopped.err


def test_ctrl_c_waits_for_no_thread() -> None:
    code = (
        "import threading, time, gen.cli, gen.cli.app\n"
        "def app(prog_name):\n"
        "    threading.Thread(target=time.sleep, args=(600,)).start()\n"
        "    raise SystemExit(130)\n"
        "gen.cli.app.app = app\n"
        "gen.cli.main()"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=CHECKOUT, timeout=60, check=False)
    assert done.returncode == 130


def test_a_spec_of_ones_own_is_known_by_its_name_once_it_is_written_down(home: Path) -> None:
    name = "stencil_weights_0482442b_f32"  # it does not stutter
    unknown = run("show", name)
    assert unknown.status == 2
    assert "gen.remember(spec)" in unknown.err
    weights = [[0, 0.1, 0], [0.1, 0.6, 0.1], [0, 0.1, 0]]
    assert gen.remember(gen.stencil(weights), home=home) == name
    assert f"{name}__" in run("show", name).out
    assert run("render", f"{name}__naive_x32_y8_u1").status == 0


def test_what_python_offers_is_listed() -> None:
    assert dir(gen) == sorted(gen.__all__)


def test_axes_that_are_no_permutation_are_named_as_the_caller_names_them() -> None:
    with pytest.raises(gen.GenError, match=r"^transpose\.axes must hold each of 0, 1, \.\.\. once"):
        gen.permutation((0, 5))


@pytest.mark.skipif(not hasattr(os, "pipe2"), reason="no pipes")
@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_a_reader_that_goes_away_ends_it_quietly(unbuffered: str) -> None:
    """Whether the first line meets the pipe that nobody reads, or all of them at the end."""
    reader, writer = os.pipe()
    os.close(reader)
    done = subprocess.run(
        [sys.executable, "-m", "gen", "list"],
        cwd=CHECKOUT, stdout=writer, stderr=subprocess.PIPE, env={**os.environ, "PYTHONUNBUFFERED": unbuffered},
        check=False,
    )  # fmt: skip
    os.close(writer)
    assert (done.returncode, done.stderr) == (141, b"")


@pytest.mark.parametrize(
    ("command", "status"),
    [("--version >&-", 0), ("--version 2>&-", 0), ("--version >&- 2>&-", 0), ("list bogus 2>&-", 2)],
)
def test_a_stream_may_be_closed_from_the_start(command: str, status: int) -> None:
    command = f'exec "$0" -m gen {command}'
    done = subprocess.run(["sh", "-c", command, sys.executable], cwd=CHECKOUT, capture_output=True, check=False)
    assert (done.returncode, done.stderr) == (status, b"")


@pytest.mark.parametrize(("package", "command"), [("typer", "doctor"), ("rich", "list"), ("jinja2", "render")])
def test_a_package_that_is_missing_is_named(package: str, command: str) -> None:
    code = f"import sys; sys.modules[{package!r}] = None; from gen.cli import main; main()"
    arguments = [sys.executable, "-c", code, command, *(["reduceShfl"] if command == "render" else [])]
    done = subprocess.run(arguments, cwd=CHECKOUT, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert done.stderr == f"error: The Python package {package} must be installed. Run: {how_to_install()}\n"


def test_a_message_goes_to_stderr_without_a_traceback() -> None:
    done = start("render", "reduceShf")
    assert done.returncode == 2
    assert done.stdout == ""
    assert done.stderr.startswith("error: ")
    assert done.stderr.count("\n") == 1


def test_the_end_of_a_command_waits_for_no_thread() -> None:
    code = """
import sys, threading, time
from concurrent.futures import ThreadPoolExecutor
import gen.cli.app
def begin():
    ThreadPoolExecutor().submit(time.sleep, 3600)
def command(prog_name):
    threading.Thread(target=begin, daemon=True).start()
    print("said")
    raise SystemExit(1)
gen.cli.app.app = command
gen.cli.main()
"""
    ended = subprocess.run([sys.executable, "-c", code], cwd=CHECKOUT, capture_output=True, timeout=60, check=False)
    assert (ended.returncode, ended.stdout) == (1, b"said\n")
