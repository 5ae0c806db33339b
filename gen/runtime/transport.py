"""How bytes go from the device of one process to that of another: by NCCL, or through the memory of the hosts.

All processes ask for the same copies in the same order; those that are asked for together go together. Every process
has streams for the ranks of others too, on its own device: what comes from a rank is received on that rank's stream,
so that the waits for events are those of devices in one process. Rows with gaps between them are packed.
"""

from __future__ import annotations

import json
import logging
import os
import weakref
from contextlib import suppress
from importlib.util import find_spec
from queue import Empty, Queue
from threading import Thread
from typing import Any

import numpy as np

from gen.errors import ProcessError
from gen.families.base import Array
from gen.gpu.device import Memory, Peer, Rows, find_gpu
from gen.runtime import dlpack
from gen.runtime.processes import Processes

log = logging.getLogger("gen")
MOST_PACKED = 256  # rooms for packed rows that are remembered
SHARE_A_GPU = "NCCL_MULTI_RANK_GPU_ENABLE"  # NCCL's own word for ranks that share one

_transports: weakref.WeakKeyDictionary[Processes, dict[Peer, Transport]] = weakref.WeakKeyDictionary()


class Transport:
    """Copies between the device of this process and those of others, through the memory of the hosts.

    The host waits until what is sent is computed; what does not depend on it goes on meanwhile.
    """

    def __init__(self, processes: Processes, device: Peer) -> None:
        """Copies nothing yet.

        Args:
            processes: those that take part, of which each has one device.
            device: that of this one.
        """
        self._processes, self._device = processes, device
        self._sends: list[tuple[int, Rows, int]] = []
        self._receives: list[tuple[int, Rows, int]] = []
        self._rooms: dict[tuple[Rows, int], Memory] = {}

    def send(self, to: int, source: Rows, stream: int) -> None:
        """Asks for a copy to another process, after what is queued on a stream."""
        if source.bytes:
            self._sends.append((to, source, stream))

    def receive(self, of: int, target: Rows, stream: int) -> None:
        """Asks for a copy from another process, queued on a stream."""
        if target.bytes:
            self._receives.append((of, target, stream))

    def flush(self) -> None:
        """Does what was asked for. Raises ProcessError if another process has died."""
        self._processes.check()
        asked, self._sends, self._receives = (self._sends, self._receives), [], []
        sends = [(to, self._packed(source, stream), stream) for to, source, stream in asked[0]]
        receives = [
            (of, target if target.contiguous else self._room(target, stream), stream) for of, target, stream in asked[1]
        ]
        if sends or receives:
            self._exchange(sends, receives)
        for (_, target, stream), (_, room, _) in zip(asked[1], receives, strict=True):
            if room is not target:
                self._device.copy_to(self._device, _as_rows(room, target), target, stream)
        self._processes.check()

    def _exchange(self, sends: list[tuple[int, Rows, int]], receives: list[tuple[int, Rows, int]]) -> None:
        contents: list[Array] = [np.empty(source.bytes, np.uint8) for _, source, _ in sends]
        for content, (_, source, stream) in zip(contents, sends, strict=True):
            self._device.download(content, source.address, stream)
        for stream in {stream: None for _, _, stream in sends}:
            self._device.synchronize(stream)
        for content, (to, _, _) in zip(contents, sends, strict=True):
            self._processes.send(to, content.data)
        for of, target, stream in receives:
            content = np.frombuffer(self._processes.receive(of, target.bytes), np.uint8)
            self._device.upload(target.address, content, stream)

    def _packed(self, source: Rows, stream: int) -> Rows:
        """The rows without gaps, where they had some."""
        if source.contiguous:
            return source
        room = self._room(source, stream)
        self._device.copy_to(self._device, source, _as_rows(room, source), stream)
        return room

    def _room(self, rows: Rows, stream: int) -> Rows:
        """Memory for rows without gaps; of one stream, so that what is there is not overwritten before it is sent."""
        if (rows, stream) not in self._rooms:
            if len(self._rooms) >= MOST_PACKED:
                self._device.synchronize()
                self._rooms.clear()
            self._rooms[rows, stream] = self._device.allocate(rows.bytes)
        return Rows.of(self._rooms[rows, stream].address, rows.bytes)


class NcclTransport(Transport):
    """Copies by NCCL's send and receive, which are kernels: the host waits for none of them."""

    def __init__(self, processes: Processes, device: Peer) -> None:
        """Meets the others: all make it at once.

        Raises:
            ProcessError: NCCL says no.
        """
        super().__init__(processes, device)
        import nccl.core

        self._nccl = nccl.core
        made = nccl.core.get_unique_id() if processes.rank == 0 else None
        said = processes.all_say("" if made is None else bytes(made).hex())[0]
        self._communicator: Any = None
        with self._refusing():
            self._communicator = self._connected(nccl.core.UniqueId.from_bytes(bytes.fromhex(said)))
        processes.on_failure(self._communicator.abort)  # ends kernels that wait for the one that died

    def _connected(self, number: Any) -> Any:
        """The communicator, made by another thread: NCCL waits for all processes, even for one that dies meanwhile."""
        made: Queue[Any] = Queue()

        def connect() -> None:
            entered = self._device.enter()
            try:
                made.put(self._nccl.Communicator.init(self._processes.size, self._processes.rank, number))
            except Exception as error:  # raised by the thread that waits  # noqa: BLE001
                made.put(error)
            finally:
                self._device.leave(entered)

        Thread(target=connect, name="gen, NCCL", daemon=True).start()
        while True:
            self._processes.check()
            with suppress(Empty):
                found = made.get(timeout=0.1)
                if isinstance(found, Exception):
                    raise found
                return found

    def _exchange(self, sends: list[tuple[int, Rows, int]], receives: list[tuple[int, Rows, int]]) -> None:
        with self._refusing(), self._nccl.group():
            for to, source, stream in sends:
                self._communicator.send(_Bytes(source, self._device), to, stream=stream)
            for of, target, stream in receives:
                self._communicator.recv(_Bytes(target, self._device), of, stream=stream)

    def _refusing(self) -> Any:
        return _Refusing(self._processes)


class _Refusing:
    """Says in words of a user what NCCL refuses."""

    def __init__(self, processes: Processes) -> None:
        self._processes = processes

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if isinstance(error, Exception):
            self._processes.check()
            raise ProcessError("NCCL", "must connect all processes", error, next_step="NCCL_DEBUG=WARN says more")


class _Bytes:
    """Memory of a GPU, as NCCL takes it. By DLPack, which says which GPU: cuda-bindings up to 13.3 say 0 for each."""

    def __init__(self, rows: Rows, device: Peer) -> None:
        self._rows, self._device = rows, device

    def __dlpack_device__(self) -> tuple[int, int]:
        return dlpack.CUDA, self._device.index

    def __dlpack__(self, *, stream: int | None = None, max_version: tuple[int, int] | None = None, **_: Any) -> Any:
        """A capsule of it; whoever asks has ordered the work of streams."""
        versioned = max_version is not None and max_version[0] >= dlpack.LARGEST_VERSION[0]
        shape, dtype = (self._rows.bytes,), np.dtype(np.uint8)
        return dlpack.offer(self, self._rows.address, shape, dtype, self.__dlpack_device__(), versioned=versioned)


def transport_of(processes: Processes, device: Peer) -> Transport:
    """What copies between these processes and this device, the same for all kernels; all processes ask at once."""
    made = _transports.setdefault(processes, {})
    if device not in made:
        made[device] = _made(processes, device)
    return made[device]


def _made(processes: Processes, device: Peer) -> Transport:
    """By NCCL where all have it, and a GPU each. Raises ProcessError if their versions differ."""
    gpu = find_gpu(device.index) if device.index >= 0 else None
    may_share = os.environ.get(SHARE_A_GPU) == "1"
    own = {"nccl": None if gpu is None else _nccl_version(), "gpu": "" if gpu is None else gpu.uuid, "share": may_share}
    said = [json.loads(one) for one in processes.all_say(json.dumps(own))]
    versions, gpus = [one["nccl"] for one in said], [one["gpu"] for one in said]
    if None not in versions and len(set(versions)) > 1:
        raise ProcessError("All processes", "must have the same version of NCCL", ", ".join(versions))
    if None in versions:
        why = "not all of them have a GPU, and NCCL: pip install 'gen-cuda[cluster]'"
    elif len(set(gpus)) < len(gpus) and not all(one["share"] for one in said):
        why = f"several share a GPU, and {SHARE_A_GPU} is not 1 in all of them"
    else:
        return NcclTransport(processes, device)
    if device.index >= 0:
        log.warning("Processes exchange through the host's memory: %s", why)
    return Transport(processes, device)


def _nccl_version() -> str | None:
    """That of the library, where it can be used."""
    if find_spec("nccl") is None:
        return None
    import nccl.core

    try:
        found = nccl.core.get_version().libnccl
    except (ImportError, RuntimeError):
        return None
    return None if found is None else str(found.version)


def _as_rows(room: Rows, rows: Rows) -> Rows:
    """Packed bytes as the rows that they are."""
    return Rows(room.address, rows.planes, rows.rows, rows.row_bytes, rows.row_bytes, rows.rows)
