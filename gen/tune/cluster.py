"""The GPUs and the cores of a Dask cluster, as a tuning run uses those of its own machine.

Workers announce their GPUs as a resource: `dask worker ADDRESS --resources GPU=1`. Sources are tasks, which Dask gives
to any worker. Each GPU is driven by an actor on its worker, as a process of its own drives it on one machine: calls of
an actor wait for no compilation. A worker that is lost costs its job only: Dask gives its tasks to others, and
`DevicePool` its attempts. Dask is imported when a cluster is asked for.
"""

from __future__ import annotations

import asyncio
import logging
import multiprocessing
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, replace
from functools import cache, partial
from importlib import import_module
from multiprocessing.util import Finalize
from pathlib import Path
from queue import SimpleQueue
from threading import Lock, Thread, Timer
from typing import TYPE_CHECKING, Any, Protocol

from gen.errors import CompileError, DeviceError, GenError, MissingToolError, RunError
from gen.families.base import Limits
from gen.gpu.device import GpuInfo, count_gpus, find_gpu
from gen.gpu.lock import alone_on
from gen.paths import cache_home, exact_version, how_to_install, output_home
from gen.store.trials import Problem, Trial
from gen.toolchain.compiled import Compiled, Compiler
from gen.toolchain.farm import CompileFarm
from gen.tune.device import Entrant, IsolatedDevice, IsolatedSession, Rounds, of_these
from gen.tune.pool import DevicePool

if TYPE_CHECKING:
    from gen.tune.gpu_session import CalibratedGpu

_log = logging.getLogger(__name__)
RESOURCE = "GPU"  # that workers announce: how many they have
DOING = "gen tune, on a cluster"
ANSWER_SECONDS = 10.0  # in which a scheduler must answer
LOOK_SECONDS = 0.5  # between looks whether a worker that is waited for is still there
IDLE_SECONDS = 60.0  # after which a worker ends the compilers that nobody uses
CALLS_AT_ONCE = 4  # of one GPU: what it does, and what waits there


class Tools(Protocol):
    """What a worker makes on its machine. Can be pickled; equal ones make the same."""

    def compiler(self) -> Compiler:
        """The compiler."""
        ...

    def find(self, number: int) -> GpuInfo | None:
        """The GPU of a number; None if there is none."""
        ...

    def factory(self, number: int) -> Callable[[], CalibratedGpu]:
        """What opens the GPU of a number in a process of its own."""
        ...


@dataclass(frozen=True)
class MachineTools:
    """A compiler, `nvrtc` or `nvcc`, and the GPUs of the machine; caches lie in the worker's own folder of results."""

    name: str

    def compiler(self) -> Compiler:
        """The compiler."""
        cache = cache_home(output_home())
        if self.name == "nvcc":
            from gen.gpu.pycuda import Nvcc

            return Nvcc(cache)
        from gen.toolchain.nvrtc import Nvrtc

        return Nvrtc(cache)

    def find(self, number: int) -> GpuInfo | None:
        """The GPU of a number; None if there are fewer."""
        return find_gpu(number) if number < count_gpus() else None

    def factory(self, number: int) -> Callable[[], CalibratedGpu]:
        """What opens it."""
        from gen.tune.gpu_session import GpuFactory

        return GpuFactory(number, self.compiler(), output_home())


@dataclass(frozen=True)
class _About:
    """What a worker says of itself.

    Attributes:
        gen, compiler, options: versions.
        threads: tasks that it does at once.
        announced: GPUs that it announces.
        models: of these, as far as they are there.
    """

    gen: str
    compiler: str
    options: str
    threads: int
    announced: int
    models: tuple[str, ...]


@dataclass(frozen=True)
class _Gpu:
    """A GPU of the cluster: the address of its worker, the number that it has there, and its model."""

    worker: str
    number: int
    model: str

    def __str__(self) -> str:
        return f"GPU {self.number} of {self.worker}"


class Cluster:
    """A Dask cluster; implements `gen.toolchain.farm.Farm`.

    Attributes:
        version, options: the compiler's, the same on all workers.
        width: threads of all workers: so many sources are compiled at once.
        models: how many GPUs of each model there are.
    """

    def __init__(self, address: str, tools: Tools) -> None:
        """Connects to a scheduler, and asks its workers what they have.

        Args:
            address: of the scheduler: `tcp://10.0.0.1:8786`.
            tools: what workers make.

        Raises:
            MissingToolError: Dask is not installed here.
            DeviceError: no scheduler answers, or there is no worker, or none with a GPU.
            RunError: workers have another gen, Python or compiler than this process, or each other.
        """
        self._tools, self._client = tools, _connected(address)
        try:
            workers = self._look(address)
        except BaseException:
            self._client.close()
            raise
        first = next(iter(workers.values()))
        self.version, self.options = first.compiler, first.options
        self.width = sum(one.threads for one in workers.values())
        self._gpus = [
            _Gpu(worker, number, model)
            for worker, one in sorted(workers.items())
            for number, model in enumerate(one.models)
        ]
        self.models = Counter(gpu.model for gpu in self._gpus)

    def submit(self, name: str, text: str, arch: str) -> Future[Compiled]:
        """Begins to compile a source on any worker; the future may hold its CompileError."""
        future: Future[Compiled] = Future()
        try:
            task = self._client.submit(_compile, self._tools, name, text, arch, pure=False)
        except Exception as error:  # it was closed, or has lost its scheduler
            raise self._useless(error) from error

        def dropped(done: Future[Compiled]) -> None:
            if done.cancelled():
                task.cancel()

        def ended(done: Any) -> None:
            if not future.set_running_or_notify_cancel():
                return
            try:
                future.set_result(done.result())
            except GenError as error:
                future.set_exception(error)
            except BaseException as error:  # noqa: BLE001  what else Dask says
                if type(error).__name__ == "KilledWorker":  # each worker that compiled it ended
                    future.set_exception(CompileError(name, f"No result: {error}", Path(f"{name}.cu")))
                else:
                    future.set_exception(self._useless(error))

        future.add_done_callback(dropped)
        task.add_done_callback(ended)
        return future

    def devices(self, model: str | None) -> DevicePool:
        """The GPUs of one model, whose name has this text in it; of the one model that there is, if None.

        Raises:
            DeviceError: there is none, or there are several.
        """
        alike = sorted(one for one in self.models if model is None or model.lower() in one.lower())
        if len(alike) != 1:
            there = ", ".join(f"{count} x {one}" for one, count in sorted(self.models.items()))
            rule = "must name one model of the cluster's GPUs, by a part of its name"
            raise DeviceError("--device", f"{rule}: there are {there}", "none" if model is None else model)
        gpus = [gpu for gpu in self._gpus if gpu.model == alike[0]]
        return DevicePool({str(gpu): partial(_RemoteDevice, self._client, gpu, self._tools) for gpu in gpus})

    def close(self) -> None:
        """Lets the cluster go; it stays."""
        self._client.close()

    def __enter__(self) -> Cluster:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _useless(self, why: object) -> RunError:
        return RunError("The cluster", "must compile what it is given", why)

    def _look(self, address: str) -> Mapping[str, _About]:
        """What each worker has, by its address. Raises as `__init__`."""
        try:
            workers: Mapping[str, _About] = self._client.run(_about, self._tools)
        except ImportError as error:
            raise _without_gen(error) from error
        _check_versions({worker: about.gen for worker, about in workers.items()}, address)
        first, one = next(iter(workers.items()))
        for worker, other in workers.items():
            if (other.compiler, other.options) != (one.compiler, one.options):
                rule = f"must have the compiler that {first} has, {one.compiler} {one.options}".rstrip()
                raise RunError(f"The worker at {worker}", rule, f"{other.compiler} {other.options}".rstrip())
            if len(other.models) < other.announced:
                rule = f"must have as many GPUs as it announces, {other.announced}"
                raise DeviceError(f"The worker at {worker}", rule, len(other.models))
        if not any(other.announced for other in workers.values()):
            rule = f"must announce the resource {RESOURCE}, the number of its GPUs"
            raise DeviceError("A worker of the cluster", rule, f"{len(workers)} without", next_step=_begin(address))
        return workers


def on_each_worker(address: str, job: Callable[..., Any], *arguments: Any) -> Mapping[str, Any]:
    """What a function of a module gives on each worker of a cluster, by address.

    Raises what the function raises, and as `Cluster`: workers must have this gen.
    """
    client = _connected(address)
    try:
        _check_versions(client.run(exact_version), address)
        found: Mapping[str, Any] = client.run(job, *arguments)
        return found
    except ImportError as error:
        raise _without_gen(error) from error
    finally:
        client.close()


def _connected(address: str) -> Any:
    """A client of Dask's."""
    try:
        distributed: Any = import_module("distributed")
    except ImportError as error:
        raise MissingToolError(
            "Dask (distributed)", "is needed to tune on a cluster", error,
            next_step=f"Run: {how_to_install('cluster')}",
        ) from error  # fmt: skip
    try:
        return distributed.Client(address, timeout=ANSWER_SECONDS, set_as_default=False)
    except (OSError, ValueError, TypeError) as error:
        raise DeviceError(
            "--scheduler", "must be the address of a Dask scheduler that answers", f"{address}: {error}",
            next_step="dask scheduler starts one, and says its address",
        ) from error  # fmt: skip


def _check_versions(versions: Mapping[str, str], address: str) -> None:
    if not versions:
        raise DeviceError(f"The scheduler at {address}", "has no worker", next_step=_begin(address))
    for worker, version in versions.items():
        if version != exact_version():
            raise RunError(f"The worker at {worker}", f"must have gen {exact_version()}, as this process has", version)


def _begin(address: str) -> str:
    return f"dask worker {address} --resources {RESOURCE}=1 starts one, beside a GPU"


def _without_gen(error: ImportError) -> RunError:
    return RunError("The workers of the cluster", f"must have gen {exact_version()}", error)


class _RemoteDevice:
    """A GPU of a worker, driven by an actor there; implements `gen.tune.device.TuningDevice`."""

    width = 1

    def __init__(self, client: Any, gpu: _Gpu, tools: Tools) -> None:
        self._client, self._worker = client, gpu.worker
        self.calls = ThreadPoolExecutor(CALLS_AT_ONCE, thread_name_prefix=str(gpu))
        self._openings = 0
        making = client.submit(
            _Driver, tools, gpu.number, actor=True, pure=False, workers=[gpu.worker], resources={RESOURCE: 1}
        )
        self._making = making  # while it is held, the actor lives
        self._actor: Any = self._wait(making)
        self.name, self.driver, self.limits = self.call("describe")

    def open(self, problem: Problem, base: Entrant) -> _RemoteSession:
        """Begins to make a problem ready."""
        self._openings += 1
        return _RemoteSession(self, self.queue("open", self._openings, problem, base), self._openings)

    def prepare(self, problem: Problem) -> None:
        """Announces a problem that will be opened later."""
        self.queue("prepare", problem)

    def floor_us(self, problem: Problem) -> float:
        """The least time of such a problem."""
        return float(self.call("floor_us", problem))

    def close(self) -> None:
        """Ends what drives it, where its worker is still there."""
        with suppress(GenError):
            self.call("close")
        self.calls.shutdown(wait=False, cancel_futures=True)
        self._making.release()

    def queue(self, method: str, *arguments: Any) -> Future[Any]:
        """A call, on a thread of its own."""
        return self.calls.submit(self.call, method, *arguments)

    def call(self, method: str, *arguments: Any) -> Any:
        """What the actor says. Raises RunError where its worker is lost."""
        try:
            with self._client.as_current():  # which an actor looks for
                future = getattr(self._actor, method)(*arguments)
        except RuntimeError as error:
            raise self._lost(error) from error
        return self._wait(future)

    def _wait(self, future: Any) -> Any:
        """What comes of a future of Dask's. Raises RunError where the worker is lost: Dask alone may wait for ever."""
        while True:
            is_there = future.done()  # before its result is asked for: it may come as the wait is cancelled
            try:
                return future.result(timeout=LOOK_SECONDS)
            except TimeoutError as error:
                if self._has_left():
                    raise self._lost("it has left the cluster") from error
            except GenError:
                raise
            except Exception as error:  # whatever Dask says of an actor that is no more
                if is_there or self._has_left():
                    raise self._lost(error) from error
                time.sleep(LOOK_SECONDS)  # what Dask says where its own wait was cancelled as its time was over

    def _has_left(self) -> bool:
        if self._client.status != "running":
            return True
        try:
            return self._worker not in self._client.nthreads()
        except (OSError, TimeoutError):  # a scheduler that is busy; where it is gone, the status says so
            return False

    def _lost(self, why: object) -> RunError:
        return RunError(f"The worker at {self._worker}", "was lost", why)


class _RemoteSession:
    """A problem on that GPU; implements `gen.tune.device.Session`."""

    def __init__(self, device: _RemoteDevice, opening: Future[None], number: int) -> None:
        self._device, self._opening, self._number = device, opening, number

    def ready(self) -> Future[None]:
        """Done when base is proven; holds the RunError if it is wrong."""
        return self._opening

    def submit(self, entrant: Entrant, give_up_us: float) -> Future[Trial]:
        """Queues an attempt."""
        return self._device.calls.submit(self._attempt, entrant, give_up_us)

    def rounds(self, entrants: Sequence[Entrant], count: int, *, hot: bool = False) -> Rounds:
        """Times variants in rounds."""
        return of_these(self._device.call("rounds", self._number, tuple(entrants), count, hot), entrants)

    def close(self) -> None:
        """Has the device's memory given back."""
        self._device.queue("end", self._number)

    def _attempt(self, entrant: Entrant, give_up_us: float) -> Trial:
        found: Trial = self._device.call("attempt", self._number, entrant, give_up_us)
        return replace(found, variant=entrant.variant)


# ---- what runs on workers


def _about(tools: Tools, dask_worker: Any) -> _About:
    """What this worker is; Dask gives the worker by the argument's name."""
    compiler, state = tools.compiler(), dask_worker.state
    announced = int(state.total_resources.get(RESOURCE, 0))
    models = tuple(found.name for number in range(announced) if (found := tools.find(number)) is not None)
    return _About(exact_version(), compiler.version, compiler.options, state.nthreads, announced, models)


def _let_it_have_processes(close: Callable[[], None]) -> None:
    """Dask's nanny makes workers daemons, which may have no processes. Ours end with the worker, however that ends.

    A worker that ends by itself calls `close` first: it would wait for its processes.
    """
    config: dict[str, object] = vars(multiprocessing.current_process())["_config"]
    config["daemon"] = False
    Finalize(None, close, exitpriority=1)


class _SharedFarm:
    """The compilers of a worker, which all its tasks share. They end when nobody has used them for a while."""

    def __init__(self) -> None:
        self._lock, self._farms, self._users = Lock(), dict[Tools, CompileFarm](), 0
        self._timer: Timer | None = None

    @contextmanager
    def used(self, tools: Tools, width: int) -> Iterator[CompileFarm]:
        """The compilers; `width` says how many processes they have."""
        with self._lock:
            if self._timer is not None:
                self._timer.cancel()
            if tools not in self._farms:
                self._farms[tools] = CompileFarm(tools.compiler(), width=width)
                _let_it_have_processes(self._farms[tools].close)
            self._users += 1
            farm = self._farms[tools]
        try:
            yield farm
        finally:
            with self._lock:
                self._users -= 1
                if not self._users:
                    self._timer = Timer(IDLE_SECONDS, self._close)
                    self._timer.daemon = True
                    self._timer.start()

    def _close(self) -> None:
        with self._lock:
            if not self._users:
                for farm in self._farms.values():
                    farm.close()
                self._farms.clear()


_shared_farm = _SharedFarm()


def _compile(tools: Tools, name: str, text: str, arch: str) -> Compiled:
    distributed: Any = import_module("distributed")
    with _shared_farm.used(tools, distributed.get_worker().state.nthreads) as farm:
        return farm.submit(name, text, arch).result()


_left: SimpleQueue[Callable[[], None]] = SimpleQueue()  # what ends the processes of drivers that nobody holds


@cache
def _watch_what_is_left() -> None:
    """Starts the thread that ends them: a collector of garbage must not, which may hold a lock that a start takes."""

    def end() -> None:
        while True:
            _left.get()()

    Thread(target=end, name="ends what is left", daemon=True).start()


class _Driver:
    """Drives a GPU of this worker in a process of its own; an actor of Dask's. Nobody else has the GPU meanwhile.

    It ends when it is told to, or when whoever made it is gone. Its methods run on the worker's event loop, so that
    they wait neither for tasks nor for each other.
    """

    def __init__(self, tools: Tools, number: int) -> None:
        _watch_what_is_left()
        self._kept = ExitStack()
        _let_it_have_processes(self._kept.close)
        self._sessions: dict[int, asyncio.Future[IsolatedSession]] = {}
        try:
            found = tools.find(number)
            if found is not None and found.uuid:
                self._kept.enter_context(alone_on(found.uuid, DOING, say=_log.info, seconds=0))
            self._device = self._kept.enter_context(IsolatedDevice(tools.factory(number)))
        except BaseException:
            self._kept.close()
            raise

    async def describe(self) -> tuple[str, str, Limits]:
        """Name, driver and limits."""
        return self._device.name, self._device.driver, self._device.limits

    async def open(self, number: int, problem: Problem, base: Entrant) -> None:
        """Makes the problem of this number ready."""
        waiting = self._session(number)
        try:
            session = self._device.open(problem, base)
        except GenError as error:
            waiting.set_exception(error)
            await waiting
        else:
            waiting.set_result(session)
            await asyncio.wrap_future(session.ready())

    async def prepare(self, problem: Problem) -> None:
        """Announces a problem."""
        self._device.prepare(problem)

    async def floor_us(self, problem: Problem) -> float:
        """The least time of a problem."""
        return await asyncio.to_thread(self._device.floor_us, problem)

    async def attempt(self, number: int, entrant: Entrant, give_up_us: float) -> Trial:
        """What comes of an attempt at the problem of this number, which may be opened later."""
        session = await self._session(number)
        return await asyncio.wrap_future(session.submit(entrant, give_up_us))

    async def rounds(self, number: int, entrants: Sequence[Entrant], count: int, hot: bool) -> Rounds:
        """Rounds at the problem of this number."""
        session = await self._session(number)
        return await asyncio.to_thread(session.rounds, entrants, count, hot=hot)

    async def end(self, number: int) -> None:
        """Gives the memory of a problem back."""
        session = await self._session(number)
        del self._sessions[number]
        session.close()

    async def close(self) -> None:
        """Ends the process, and lets others have the GPU."""
        await asyncio.to_thread(self._kept.close)

    def __del__(self) -> None:
        _left.put(self._kept.close)  # nothing that waits: any thread collects garbage, whatever locks it holds

    def _session(self, number: int) -> asyncio.Future[IsolatedSession]:
        if number not in self._sessions:
            self._sessions[number] = asyncio.get_running_loop().create_future()
        return self._sessions[number]
