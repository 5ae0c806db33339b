"""A kernel to call: checks what it is given, picks the variant, launches it."""

from __future__ import annotations

import inspect
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cache, partial
from typing import Any, NoReturn

import numpy as np

from gen.emit.render import render
from gen.errors import ArgumentError, DeviceError, GenError, RunError
from gen.families.base import WIDEST, Extents, Spec, Variant, html_table
from gen.families.extents import checked_runtime_parameters, extents_of
from gen.families.plans import Step, steps
from gen.gpu.device import GRAPH_FROM, LEGACY_STREAM, Code, Device, DriverFunctions, Graph, Prepared
from gen.runtime.arrays import Given, Kind, Shape, adopted, adopted_on_host, as_bytes, handle_of, make, read, stream_of
from gen.runtime.device_code import Loader
from gen.runtime.dispatch import Choice, Chooser
from gen.runtime.graphs import CallGraphs
from gen.runtime.signature import ALIGNMENT, Results, Signature
from gen.runtime.tuning import FirstCalls
from gen.runtime.workspace import Buffers, Needed, Workspace

MOST_SHAPES = 1024  # calls that are remembered
MOST_GRAPHS, MOST_SEEN = 4, 64  # of a call at fixed sizes: for other addresses each

Place = tuple[Shape, tuple[int, ...], np.dtype[Any], int] | None
"""All of an array that a plan depends on: shape, strides, dtype, how its address is aligned. None: not given."""


@dataclass(frozen=True)
class Ready:
    """A call at fixed sizes, to be repeated; `remembered` are the kinds of arrays for which the launcher knows it."""

    launches: Launches
    scratch: tuple[Needed, ...]
    results: Results
    variant: Variant
    planned: tuple[Step, ...]
    remembered: set[Kind] = field(default_factory=set)


@dataclass(frozen=True)
class Planned:
    """What a call with dense arrays launches, for whoever launches it otherwise.

    Attributes:
        arrays: names of the inputs, then of the outputs.
        results: shape and dtype of each output.
        scratch: further memory that the launches take.
        steps: the launches, whose arguments are names and numbers.
        code: whose kernels they start.
    """

    arrays: tuple[str, ...]
    results: tuple[tuple[Shape, np.dtype[Any]], ...]
    scratch: tuple[Needed, ...]
    steps: tuple[Step, ...]
    code: Code


class Launches:
    """Those of a call at fixed sizes. One thread at a time may use it.

    Many of them become a graph when they are repeated with the same addresses and numbers: the device then queues all
    of them at once.
    """

    def __init__(self, device: Device, prepared: Prepared, count: int) -> None:
        self._device, self._prepared, self._count = device, prepared, count
        self._graphs = CallGraphs(MOST_GRAPHS, MOST_SEEN)

    def queue(self, addresses: Mapping[str, int], numbers: Mapping[str, bytes], stream: int) -> None:
        """Queues them all."""
        graph = self._graph(dict(addresses), numbers, stream) if self._count >= GRAPH_FROM else None
        if graph is None:
            self._prepared.launch(addresses, numbers, stream)
        else:
            graph.replay(stream)

    def _graph(self, addresses: dict[str, int], numbers: Mapping[str, bytes], stream: int) -> Graph | None:
        """The graph of a call that is given what an earlier one was; none where it would become part of another."""
        if self._device.capture_of(stream):
            return None
        given = (frozenset(addresses.items()), frozenset(numbers.items()))
        device, prepared = self._device, self._prepared
        return self._graphs.of(given, lambda: device.capture(lambda own: prepared.launch(addresses, numbers, own)))


class Kernel:
    """A spec on a device, callable with arrays of NumPy, torch, CuPy and others. Threads may share one.

    `kernel(a)` makes and returns the outputs; `kernel(a, out=b, stream=s)` writes to `b` on the stream `s`. NumPy
    arrays are copied to the GPU and back; all others are used in place, and the call does not wait for the GPU.

    Graphs: a call on a stream that is being captured becomes part of the graph, with scratch memory of its own that
    lives as long as this object. Keep it as long as the graph, and replay one graph on one stream at a time.
    """

    def __new__(cls, _: Chooser, loader: Loader, *__: Any) -> Kernel:
        """One that asks the launcher first, where there is one."""
        base = loader.base()
        if base is None:
            return super().__new__(cls)
        made: Kernel = base.__new__(_repeating(base))
        return made

    def __init__(
        self, chooser: Chooser, loader: Loader, first_calls: FirstCalls, extents: Extents | None = None,
        alignment: int = WIDEST,
    ) -> None:  # fmt: skip
        """Picks the variant and makes it ready, if `extents` says for which sizes; else calls do."""
        self._chooser = chooser
        self._first_calls = first_calls
        self._loader, self._device = loader, loader.device
        self._signature = Signature(chooser.family, chooser.spec)
        self._lock = threading.RLock()
        self._codes: dict[str, Code] = {}
        self._ready: dict[tuple[Place | int, ...], Ready] = {}
        self._launcher = loader.launcher(self._signature)
        if self._launcher is not None:
            self._repeats = self._launcher.repeats  # which goes before `__call__`
        self._workspace = Workspace(loader.device, self._launcher)
        self._others: dict[Spec, Kernel] = {}
        self._bound: Choice | None = None
        if extents is not None:
            first_calls.tune(chooser, self._device, extents, alignment)
            self._bound = self._choose(extents, alignment)
            self._code(self._bound.variant)

    @property
    def spec(self) -> str:
        """The spec's name."""
        return self._chooser.name

    @property
    def variant(self) -> str:
        """The variant's name, if the kernel was loaded for a shape. Raises GenError if not."""
        return self._one().variant.name

    @property
    def source(self) -> str:
        """The text of the variant's `.cu` file."""
        return render(self._one().variant)

    @property
    def why(self) -> str:
        """Why this variant was chosen, in a sentence."""
        return self._one().why

    @property
    def tuned(self) -> bool:
        """Whether it was measured to be the fastest of the spec for such sizes."""
        return self._one().tuned

    def variant_for(self, shape: Any, **runtime_parameters: int) -> str:
        """The name of the variant that an input of this shape gets; runtime parameters as in a call: `steps=100`."""
        return self._choose(self._extents(shape, runtime_parameters)).variant.name

    def why_for(self, shape: Any, **runtime_parameters: int) -> str:
        """Why an input of this shape gets that variant, in a sentence."""
        return self._choose(self._extents(shape, runtime_parameters)).why

    def tune(self, problem: Any, seconds: float, runtime_parameters: Mapping[str, Any]) -> None:
        """Tunes a problem now, unless it was: what `gen.tune` does, whose arguments these are.

        Raises ArgumentError for an array where a spec has several inputs: a shape says what is meant.
        """
        first, *others = self._signature.inputs
        alignment = WIDEST
        if isinstance(problem, int | tuple | list):
            extents = self._extents(problem, runtime_parameters)
        elif others:
            rule, next_step = "must be the shape of its first input", f"{self.spec} has several inputs"
            raise ArgumentError("A problem", rule, type(problem).__name__, next_step=next_step)
        else:
            given = {first.name: read(first.name, problem)}
            stated = self._signature.checked_runtime_parameters(dict(runtime_parameters))
            extents, _ = self._signature.check(given, stated)
            if given[first.name].kind is not Kind.NUMPY:  # of which calls make a copy that lies where it should
                alignment = self._signature.alignment(given)
        FirstCalls(self._first_calls.home, seconds).tune(self._chooser, self._device, extents, alignment)

    def planned(self, shape: Shape, dtype: np.dtype[Any], runtime_parameters: Mapping[str, int]) -> Planned:
        """What a call with one dense input launches. Raises GenError if it takes no such input."""
        (operand,) = self._signature.inputs
        parameters = self._signature.checked_runtime_parameters(dict(runtime_parameters))
        address = ALIGNMENT + WIDEST  # aligned to as much as XLA says, and to no more
        given = Given.dense(address, shape, dtype, self._device.index)
        entered = self._device.enter()
        try:
            ready = self._find_ready({operand.name: given}, parameters)
        finally:
            self._device.leave(entered)
        outputs = [x.name for x in self._signature.outputs]
        results = tuple(ready.results[name] for name in outputs)
        return Planned((operand.name, *outputs), results, ready.scratch, ready.planned, self._code(ready.variant))

    def queued(
        self, given: Mapping[str, Given], runtime_parameters: Mapping[str, int], values: Mapping[str, bytes]
    ) -> Callable[[int], None]:
        """What queues a call with memory of its device on a stream, time after time; the device must be current."""
        ready = self._find_ready(given, self._signature.checked_runtime_parameters(dict(runtime_parameters)))
        addresses = {name: one.address for name, one in given.items()}

        def queue(stream: int) -> None:
            self._launch(ready, dict(addresses), values, stream)

        return queue

    def queued_as(self, made: Variant, extents: Extents, addresses: Mapping[str, int]) -> Callable[[int], None]:
        """What queues a variant of any spec without scratch memory on a stream; the device must be current."""
        sizes = {**extents, **self._device.limits.sizes()}
        prepared = self._code(made).prepare(extents, tuple(steps(made.plan, sizes)))
        return partial(prepared.launch, addresses, {})

    def driver_functions(self) -> DriverFunctions:
        """What a program needs that launches without Python. Raises DeviceError where there is no driver."""
        functions = self._device.driver_functions()
        if functions is None:
            raise DeviceError(self._device.name, "has no driver whose functions a program could call")
        return functions

    def __repr__(self) -> str:
        what = self._chooser.name if self._bound is None else self._bound.variant.name
        return f"<gen kernel {what} on {self._device.name}>"

    def _repr_html_(self) -> str:
        on, family, spec = ("on", self._device.name), self._chooser.family, self._chooser.spec
        if self._bound is not None:
            return html_table(self.variant, (on, *self._bound.told), source=self.source)
        parts = [part for one in family.shape_classes(spec) for part in self._chooser.choices(one)]
        classes = ((words, choice.variant.name, choice.why) for words, choice in parts)
        return html_table(self.spec, (on, ("computes", spec.summary), *classes))

    def __call__(self, *arguments: Any, out: Any = None, stream: Any = None, **numbers: Any) -> Any:
        """Runs the kernel.

        Args:
            *arguments: the inputs in the spec's order, then its numbers.
            out: where the result goes: an array, or a tuple of them where there are several outputs. A family may take
                one of a dtype that holds more than the spec says: a sum of f32 goes into f64, and is added in it.
            stream: of torch or CuPy, or the driver's handle. Without it: the current stream of torch or CuPy, if the
                first array is theirs; else the one that its interface names; else the legacy default stream.
            **numbers: the spec's numbers by name, in place of those by position, and runtime parameters: `steps=100`.

        Returns:
            The output, or a tuple of them, of the same kind as the first input; `out` itself where it was given.

        Raises:
            GenError: an argument is not what the spec takes. Nothing was launched.
            RunError: the device refused a launch.
        """
        runtime_parameters = self._signature.checked_runtime_parameters(numbers)
        inputs, values = self._signature.sort(arguments, numbers)
        given: dict[str, Given] = {
            x.name: read(x.name, value) for x, value in zip(self._signature.inputs, inputs, strict=True)
        }
        for operand, array in zip(self._signature.outputs, self._signature.outs(out), strict=True):
            if array is not None:
                given[operand.name] = read(operand.name, array)
                if not operand.dtype.holds(given[operand.name].dtype):
                    other = self._into(given)
                    if other is not self:
                        return other(*arguments, out=out, stream=stream, **numbers, **runtime_parameters)
        handle = None if stream is None else handle_of(stream)
        entered = self._device.enter()
        try:
            if self._signature.check_kinds(given, self._device):
                results = self._run_on_host_arrays(given, runtime_parameters, values, handle or LEGACY_STREAM)
            else:
                results = self._run_in_place(given, runtime_parameters, values, handle)
        finally:
            self._device.leave(entered)
        return results[0] if len(results) == 1 else tuple(results)

    def _into(self, given: Mapping[str, Given]) -> Kernel:
        """The kernel that computes the same into outputs of these dtypes; this one where there is none."""
        outputs = {x.name: given[x.name].dtype for x in self._signature.outputs if x.name in given}
        spec = self._chooser.family.for_outputs(self._chooser.spec, outputs)
        if spec == self._chooser.spec:
            return self
        with self._lock:
            if spec not in self._others:
                self._others[spec] = Kernel(self._chooser.of(spec), self._loader, self._first_calls)
            return self._others[spec]

    def _run_in_place(
        self,
        given: dict[str, Given],
        runtime_parameters: Mapping[str, int],
        values: Mapping[str, bytes],
        chosen: int | None,
    ) -> list[Any]:
        ready = self._find_ready(given, runtime_parameters, chosen)
        self._signature.check_overlap(given)
        stream = self._stream(given, chosen)
        self._remember(ready, given, runtime_parameters)
        first = given[self._signature.inputs[0].name]
        brought = set(given)
        for operand in self._signature.outputs:
            if operand.name not in given:
                shape, dtype = ready.results[operand.name]
                given[operand.name] = make(first, shape, dtype, self._device, stream, chosen is not None)
        self._launch(ready, {name: one.address for name, one in given.items()}, values, stream)
        if any(one.kept is not None for one in given.values()) and not self._device.capture_of(stream):
            self._device.synchronize(stream)  # their owners may reuse the memory once the capsules are gone
        returned = [x.name for x in self._signature.outputs or self._signature.inputs if x.role != "in"]
        return [given[x].array if x in brought else adopted(first, given[x].array) for x in returned]

    def _run_on_host_arrays(
        self, given: dict[str, Given], runtime_parameters: Mapping[str, int], values: Mapping[str, bytes], stream: int
    ) -> list[Any]:
        """Copies NumPy arrays to the device, densely, and the results back."""
        extents, results = self._signature.check(given, runtime_parameters)
        self._signature.check_overlap(given)
        hosts = {x.name: host for x in self._signature.inputs if (host := given[x.name].host) is not None}
        self._chooser.family.check_content(self._chooser.spec, hosts, extents)
        if self._device.capture_of(stream):
            raise ArgumentError("stream", "must not be capturing a graph: NumPy arrays cannot be part of one", stream)
        content = {}
        for operand in self._signature.arrays:
            if operand.role == "out":
                shape, dtype = results[operand.name]
                content[operand.name] = np.empty(shape, dtype)
            else:  # not `ascontiguousarray`, which gives arrays without axes one
                array = given[operand.name].host
                assert array is not None
                content[operand.name] = np.asarray(as_bytes(array), order="C").view(array.dtype)
        memory = {name: self._device.allocate(array.nbytes) for name, array in content.items()}
        dense = {
            name: read(name, array)._replace(address=memory[name].address) for name, array in content.items()
        }  # fmt: skip
        ready = self._find_ready(dense, runtime_parameters)
        for operand in self._signature.inputs:
            self._device.upload(memory[operand.name].address, content[operand.name], stream)
        buffers = self._launch(ready, {name: one.address for name, one in memory.items()}, values, stream)
        changed = [operand for operand in self._signature.arrays if operand.role != "in"]
        try:
            for operand in changed:
                self._device.download(content[operand.name], memory[operand.name].address, stream)
            self._device.synchronize(stream)
        except RunError:
            if buffers is not None:
                with self._lock:
                    self._discard(buffers)
            raise
        for operand in changed:
            if operand.name in given:
                target = given[operand.name].host
                assert target is not None
                as_bytes(target)[...] = as_bytes(content[operand.name])
        made = [x for x in changed if x.role == "out"] or changed
        first = given[self._signature.inputs[0].name]
        return [
            given[x.name].array if x.name in given else adopted_on_host(first, content[x.name]) for x in made
        ]  # fmt: skip

    def _launch(
        self, ready: Ready, addresses: dict[str, int], values: Mapping[str, bytes], stream: int
    ) -> Buffers | None:
        """Queues every launch; returns the scratch memory in use."""
        with self._lock:
            if not ready.scratch:
                ready.launches.queue(addresses, values, stream)
                return None
            buffers = self._workspace.on(stream)
            buffers.acquire()
            try:
                addresses.update(buffers.addresses(ready.scratch, stream))
                ready.launches.queue(addresses, values, stream)
            except BaseException:
                buffers.discard()
                raise
            finally:
                buffers.release()
        return buffers

    def _remember(
        self, ready: Ready, given: Mapping[str, Given], runtime_parameters: Mapping[str, int]
    ) -> None:  # fmt: skip
        """Lets the launcher repeat this call, where it can; `given` are the arrays that the call brought."""
        kind = given[self._signature.inputs[0].name].kind
        if self._launcher is None or kind in ready.remembered or len(ready.planned) >= GRAPH_FROM:
            return
        if self._launcher.remember(
            ready.variant.name, given, runtime_parameters, self._code(ready.variant), ready.planned, ready.scratch,
            ready.results,
        ):  # fmt: skip
            ready.remembered.add(kind)

    def _given_up(self, refused: Exception) -> NoReturn:
        """Raises the error for a launch that the driver refused the launcher; scratch may be in any state."""
        assert self._launcher is not None
        stream, error = self._launcher.error(refused)
        entered = self._device.enter()
        try:
            with self._lock:
                self._discard(self._workspace.on(stream))
        finally:
            self._device.leave(entered)
        raise error from None

    def _discard(self, buffers: Buffers) -> None:
        buffers.acquire()
        buffers.discard()
        buffers.release()

    def _stream(self, given: Mapping[str, Given], chosen: int | None) -> int:
        """The stream to launch on; it waits for the streams on which others say that their content is produced."""
        ready: dict[Kind | str, int | None] = {}
        for name, one in given.items():
            if one.kind is Kind.OTHER:
                ready[name] = one.ready
            elif chosen is None and one.kind not in ready:
                ready[one.kind] = stream_of(one)
            # else whoever names a stream has ordered the work of torch and CuPy
        stream = chosen or next(iter(ready.values()), None) or LEGACY_STREAM
        others = {other for other in ready.values() if other is not None and other != stream}
        if others and not self._device.capture_of(stream):  # a graph has no order with what lies outside of it
            for other in others:
                self._device.wait(stream, other)
        return stream

    def _find_ready(
        self, given: Mapping[str, Given], runtime_parameters: Mapping[str, int], chosen: int | None = None
    ) -> Ready:
        """The call as it is made ready; `chosen` is the stream that the caller names."""
        key: tuple[Place | int, ...] = tuple(
            [None if (g := given.get(x.name)) is None else _place(g) for x in self._signature.arrays]
        )
        key += tuple(runtime_parameters.get(name, -1) for name in self._signature.runtime_parameters)
        ready = self._ready.get(key)
        if ready is None:
            with self._lock:
                ready = self._make_ready(given, runtime_parameters, chosen)
                if len(self._ready) >= MOST_SHAPES:
                    self._ready.clear()
                    if self._launcher is not None:
                        self._launcher.forget()
                self._ready[key] = ready
        return ready

    def _make_ready(
        self, given: Mapping[str, Given], runtime_parameters: Mapping[str, int], chosen: int | None
    ) -> Ready:  # fmt: skip
        extents, results = self._signature.check(given, runtime_parameters)
        alignment = self._signature.alignment(given)
        if self._bound is None:
            first = given[self._signature.inputs[0].name]

            def capturing() -> bool:
                return bool(self._device.capture_of(chosen or stream_of(first) or LEGACY_STREAM))

            self._first_calls.tune(self._chooser, self._device, extents, alignment, capturing)
        made = self._choose(extents, alignment).variant
        sizes = {**extents, **self._device.limits.sizes()}
        plan = made.plan
        scratch = tuple(Needed(s.name, s.bytes.at(sizes), s.zeroed) for s in plan.scratch)
        planned = tuple(steps(plan, sizes))
        launches = Launches(self._device, self._code(made).prepare(extents, planned), len(planned))
        return Ready(launches, scratch, results, made, planned)

    def _extents(self, shape: Any, runtime_parameters: Mapping[str, int]) -> Extents:
        family, spec = self._chooser.family, self._chooser.spec
        return {**extents_of(family, spec, shape), **checked_runtime_parameters(family, spec, runtime_parameters)}

    def _choose(self, extents: Extents, alignment: int = WIDEST) -> Choice:
        chooser = self._chooser
        choice = chooser.covering(self._bound, extents) if self._bound else chooser.for_call(extents, alignment)
        if self._device.index >= 0:  # on the CPU run nothing is ever tuned
            chooser.say_once(choice)
        return choice

    def _code(self, made: Variant) -> Code:
        with self._lock:
            if made.name not in self._codes:
                entered = self._device.enter()
                try:
                    self._codes[made.name] = self._loader.code(made)
                finally:
                    self._device.leave(entered)
            return self._codes[made.name]

    def _one(self) -> Choice:
        if self._bound is None:
            raise GenError(
                self.spec, "was loaded without a shape, so every call picks its variant",
                next_step="Ask variant_for(shape), or load it with shape=",
            )  # fmt: skip
        return self._bound


@cache
def _repeating(base: Any) -> type[Any]:
    """The class of kernels whose calls the launcher gets first, and `__call__` in Python only where it does nothing."""
    called = inspect.signature(Kernel.__call__)
    members = {
        "__module__": Kernel.__module__, "__doc__": Kernel.__doc__, "_by_python": Kernel.__call__,
        "__signature__": called.replace(parameters=list(called.parameters.values())[1:]),  # without `self`
    }  # fmt: skip
    return type(Kernel.__name__, (base, Kernel), members)


def _place(given: Given) -> Place:
    return given.shape, given.strides, given.dtype, given.address % ALIGNMENT
