"""Tuning on a Dask cluster of four processes, whose GPUs are none; one is killed midway."""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from typer.testing import CliRunner

from gen.cli.app import app
from gen.errors import CompileError, DeviceError, MissingToolError, RunError
from gen.gpu.lock import alone_on
from gen.paths import exact_version
from gen.store.trials import Trials
from gen.store.winners import TUNED_FILE, is_locked, read_winners, text_of_winners
from gen.tune import cluster as module
from gen.tune.cluster import Cluster, on_each_worker
from gen.tune.one_problem import Options, tune
from gen.tune.search import Space
from tests.fake_cluster import FakeTools
from tests.fake_tuning import FakeFarm, FakeTuningDevice, time_of
from tests.host.test_pool import PROBLEM, some, text_of, told

distributed = pytest.importorskip("distributed", reason="Dask is not installed: pip install -e '.[cluster]'")
WORKERS = 4
LONG_SECONDS = 300.0  # in which all happens that is waited for


@pytest.fixture(scope="module")
def workers_home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of results of all workers."""
    return tmp_path_factory.mktemp("workers")


@pytest.fixture(scope="module")
def address(workers_home: Path) -> Iterator[str]:
    """A scheduler with four workers, a GPU each; forked, since each would import Dask for seconds."""
    import dask

    with (
        dask.config.set({"distributed.worker.multiprocessing-method": "forkserver"}),
        distributed.LocalCluster(
            n_workers=WORKERS,
            threads_per_worker=1,
            resources={"GPU": 1},
            dashboard_address=":0",
            silence_logs=50,
            env={"GEN_HOME": str(workers_home)},
        ) as local,
    ):
        yield local.scheduler_address


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a machine that is busy with other tests a scheduler may take long to answer."""
    monkeypatch.setattr(module, "ANSWER_SECONDS", LONG_SECONDS)


def workers_of(address: str) -> list[int]:
    return sorted(on_each_worker(address, os.getpid).values())


def alone(folder: Path) -> Any:
    """What one fake GPU comes to."""
    trials = Trials(folder / "alone")
    device = FakeTuningDevice(lambda made: time_of(made.name))
    outcome = tune(PROBLEM, device, FakeFarm(), trials, options=Options(some), text=text_of)
    trials.close()
    return told(outcome)


def test_a_cluster_comes_to_what_one_gpu_comes_to_though_a_worker_is_killed(
    address: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    trials = Trials(tmp_path / "home")
    with Cluster(address, FakeTools(tmp_path, seconds=0.01)) as found, found.devices(None) as device:
        assert (found.width, device.width, dict(found.models)) == (WORKERS, WORKERS, {"Fake GPU": WORKERS})
        victim = workers_of(address)[1]

        def tick(done: int, _: int) -> None:
            if done == 20:
                os.kill(victim, signal.SIGKILL)

        outcome = tune(PROBLEM, device, found, trials, options=Options(some), text=text_of, tick=tick)
        assert told(outcome) == alone(tmp_path)
        assert all(trial.variant.family is PROBLEM.family for trial in outcome.trials)  # none is a copy
        assert trials.count() == len(outcome.trials)
        names = {name for worker in on_each_worker(address, _processes).values() for name in worker}
        assert names == {"compiles", "drives the GPU"}
    trials.close()
    said = [record.message for record in caplog.records if record.name == "gen.tune.pool"]
    assert ["was lost" in one for one in said] == [True]
    assert [path.read_text().split().count("start") for path in tmp_path.glob("*-0")] == [1] * WORKERS


def _processes() -> list[str]:
    return [process.name for process in multiprocessing.active_children()]


def test_who_goes_without_a_word_leaves_the_gpus_to_others(address: str, tmp_path: Path) -> None:
    gone = Cluster(address, FakeTools(tmp_path))
    kept = [gone.devices(None)]
    gone.close()
    with Cluster(address, FakeTools(tmp_path)):
        end = time.monotonic() + LONG_SECONDS
        while any("drives the GPU" in names for names in on_each_worker(address, _processes).values()):
            assert time.monotonic() < end
            time.sleep(0.05)
    with pytest.raises(RunError, match="was lost"):
        kept[0].floor_us(PROBLEM)


def test_a_driver_that_is_dropped_starts_no_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where garbage is collected a start may wait for a lock that the very thread has: a worker hung so for ever."""
    ended, started = threading.Event(), list[object]()
    module._watch_what_is_left()
    driver = module._Driver.__new__(module._Driver)
    driver._kept = ExitStack()
    driver._kept.callback(ended.set)
    monkeypatch.setattr(threading.Thread, "start", started.append)
    del driver
    assert not started
    assert ended.wait(LONG_SECONDS)


class Unfinished:
    """A future of Dask's, whose wait is cancelled as its time is over; the result comes before, or as it is."""

    def __init__(self, *errors: Exception) -> None:
        self.errors = list(errors)

    def done(self) -> bool:
        return not self.errors

    def result(self, timeout: float) -> str:
        if self.errors:
            raise self.errors.pop(0)
        return "there"


@pytest.mark.parametrize("more", [(), (TimeoutError(),)])
@pytest.mark.parametrize("workers", [("here",), ()])
def test_a_wait_that_ends_without_a_result_goes_on_while_the_worker_is_there(
    workers: tuple[str, ...], more: tuple[Exception, ...]
) -> None:
    future = Unfinished(UnboundLocalError("result"), *more)
    device = module._RemoteDevice.__new__(module._RemoteDevice)
    device._worker = "here"
    device._client = SimpleNamespace(status="running", nthreads=lambda: workers)
    if workers:
        assert device._wait(future) == "there"
    else:
        with pytest.raises(RunError, match="The worker at here was lost"):
            device._wait(future)


def test_sources_are_compiled_anywhere_and_refusals_are_the_compilers(address: str, tmp_path: Path) -> None:
    with Cluster(address, FakeTools(tmp_path, refused="bad")) as found:
        futures = [found.submit(name, f"void {name}()", "sm_90") for name in ("one", "bad", "two")]
        assert [futures[place].result(LONG_SECONDS).cubin for place in (0, 2)] == [b"one", b"two"]
        with pytest.raises(CompileError, match=r"expected a ';'"):
            futures[1].result(LONG_SECONDS)
        assert (found.version, found.options) == ("fake 1.0", "")
    with pytest.raises(RunError, match="must compile what it is given"):
        found.submit("three", "three", "sm_90").result(LONG_SECONDS)


def test_workers_that_differ_are_refused(address: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(RunError, match=r"The worker at tcp://.* must have the compiler that tcp://.* has, of process"):
        Cluster(address, FakeTools(tmp_path, apart=True))
    with pytest.raises(DeviceError, match=r"must have as many GPUs as it announces, 1 \(got 0\)"):
        Cluster(address, FakeTools(tmp_path, gpus=0))
    version = exact_version()
    monkeypatch.setattr(module, "exact_version", lambda: "99")
    with pytest.raises(
        RunError, match=rf"The worker at tcp://.* must have gen 99, as this process has \(got {version}"
    ):
        Cluster(address, FakeTools(tmp_path))


def test_gpus_of_another_run_are_left_out(address: str, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    tools = FakeTools(tmp_path, uuid=f"GPU-{os.getpid()}")  # the four are one
    with Cluster(address, tools) as found:
        with found.devices("fake") as device:
            assert device.width == 1
        assert caplog.text.count("is left out: The GPU is in use by process") == 3
        with alone_on(tools.uuid, "gen tune", say=print), pytest.raises(DeviceError, match="is in use by process"):
            found.devices(None)


def test_a_model_that_is_not_there_is_refused(address: str, tmp_path: Path) -> None:
    with Cluster(address, FakeTools(tmp_path)) as found:
        with pytest.raises(DeviceError, match=r"--device must name one model .*: there are 4 x Fake GPU \(got A100\)"):
            found.devices("A100")
        found.models["Fake GPU 2"] = 1
        with pytest.raises(DeviceError, match=r"there are 4 x Fake GPU, 1 x Fake GPU 2 \(got none\)"):
            found.devices(None)


def test_a_cluster_without_gpus_or_workers_or_none_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    local = partial(distributed.LocalCluster, processes=False, dashboard_address=":0", threads_per_worker=1)
    tools = FakeTools(tmp_path, gpus=2)
    for count, says in ((0, r"has no worker. dask worker inproc://.* --resources GPU=1 starts one"),
                        (1, r"must announce the resource GPU.* \(got 1 without\)")):  # fmt: skip
        with local(n_workers=count) as without, pytest.raises(DeviceError, match=says):
            Cluster(without.scheduler_address, tools)
    with (
        local(n_workers=1, resources={"GPU": 2}) as two,
        Cluster(two.scheduler_address, tools) as found,
        found.devices(None) as device,
    ):
        assert (found.width, device.width) == (1, 2)
    monkeypatch.setattr(module, "ANSWER_SECONDS", 0.2)
    for address in ("tcp://127.0.0.1:1", "nowhere", ""):
        with pytest.raises(DeviceError, match="--scheduler must be the address of a Dask scheduler that answers"):
            Cluster(address, FakeTools(tmp_path))
    monkeypatch.setitem(sys.modules, "distributed", None)
    with pytest.raises(MissingToolError, match=r"is needed to tune on a cluster .*\[cluster\]"):
        Cluster("tcp://127.0.0.1:1", FakeTools(tmp_path))


def ran(*arguments: str | Path) -> tuple[int, str]:
    result = CliRunner(env={"COLUMNS": "250"}).invoke(app, [*map(str, arguments)], prog_name="gen")
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    return result.exit_code, result.output


gen, lock = partial(ran, "tune"), partial(ran, "lock")


def test_the_command_tunes_on_a_cluster_and_locks_the_choice_there(
    address: str, workers_home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    at = Space.at
    monkeypatch.setattr(Space, "at", lambda space, number: at(space, number) if number % 397 == 0 else None)
    monkeypatch.setattr("gen.tune.locked.all_winners", read_winners)  # without those that came with gen
    monkeypatch.setattr(module, "MachineTools", lambda _compiler: FakeTools(tmp_path))
    wanted = ("transpose_10_b32", "--shape", "64x96", "--home", tmp_path / "home")
    status, said = gen(*wanted, "--scheduler", address)
    assert status == 0
    assert "Compiles on 4 threads, and times on 4 x Fake GPU." in said
    assert "4 x Fake GPU, driver 1.0" in said
    (winner,) = read_winners(tmp_path / "home")
    assert winner.device == "Fake GPU"
    assert "must name one model" in gen(*wanted, "--scheduler", address, "--device", "H100")[1]
    for option in ("--verify", "--frozen", "--stale", "--gpu=0"):
        status, said = gen("transpose_10_b32", "--scheduler", address, option)
        assert (status, f"--scheduler and {option.removesuffix('=0')} do not go together" in said) == (2, True)
    (workers_home / TUNED_FILE).write_text(text_of_winners([replace(winner, device="Own GPU")]))
    status, said = lock("--home", tmp_path / "home", "--scheduler", address)
    assert status == 0
    assert said.count(f"{workers_home} is locked with them.") == WORKERS
    assert is_locked(workers_home)
    assert winner in read_winners(workers_home)
    assert read_winners(workers_home) == read_winners(tmp_path / "home")
    monkeypatch.setattr(module, "ANSWER_SECONDS", 0.2)
    (tmp_path / "another").mkdir()
    for home, locked in (("home", True), ("another", False)):  # which stays as it was
        assert lock("--home", tmp_path / home, "--scheduler", "tcp://127.0.0.1:1")[0] == 1
        assert is_locked(tmp_path / home) == locked
