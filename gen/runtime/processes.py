"""Processes that compute together, on one machine or several: who they are, and messages between them.

All run the same program and make the same calls in the same order, from one thread; nobody is started here. They find
each other through what the program runs anyway, torch.distributed, JAX or mpi4py, or at an address of the first one.
From then on every two have a connection of TCP. It carries what the host says, and shows when the other one dies: the
system closes the connections of a process that ends, and asks every few seconds whether a silent machine is there.
"""

from __future__ import annotations

import atexit
import json
import socket
import struct
import sys
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from dataclasses import dataclass
from hashlib import sha256
from typing import Any

from gen.errors import ArgumentError, ProcessError
from gen.paths import exact_version

SECONDS = 60.0  # in which all have to come
_SILENT_S, _PROBES = 2, 3  # after so many seconds without a word a machine is asked, and then so often again
_HEAD = struct.Struct("!cQ")  # the kind of a message, and its bytes
_CONTENT, _WORD, _LOST, _END = b"c", b"w", b"l", b"e"
_ADDRESS_BYTES = 256
_LAST_PORT = 65535
_EVERYWHERE = "Nothing was computed: make the same call in all of them"


@dataclass(frozen=True)
class Meeting:
    """How processes find each other.

    Attributes:
        rank: of this one.
        size: how many there are.
        tell: brings the address of the first one, which alone knows it, to all; None where all know it.
        address: where the first one listens: a host, and a port or 0 for any.
    """

    rank: int
    size: int
    tell: Callable[[str], str] | None
    address: tuple[str, int]


class Processes:
    """Those that compute together; `gen.join` makes it. For one thread.

    Attributes:
        rank: the number of this one, from 0.
        size: how many there are.
    """

    def __init__(self, rank: int, links: Mapping[int, socket.socket]) -> None:
        """Listens to the others.

        Args:
            rank: of this one.
            links: the connection to each of the others.
        """
        self.rank, self.size = rank, len(links) + 1
        self._links = dict(links)
        self._inbox: dict[int, deque[tuple[bytes, bytearray]]] = {other: deque() for other in links}
        self._news = threading.Condition()
        self._ended: set[int] = set()
        self._dead: int | None = None
        self._why = ""
        self._alarms: list[Callable[[], None]] = []
        for other in links:
            threading.Thread(target=self._listen, args=(other,), name=f"gen, process {other}", daemon=True).start()
        atexit.register(_close, weakref.ref(self))

    @property
    def others(self) -> tuple[int, ...]:
        """The numbers of the others."""
        return tuple(self._links)

    def send(self, to: int, content: bytes | memoryview, kind: bytes = _CONTENT) -> None:
        """Sends bytes, which come in the order of the calls. Raises ProcessError if one has died."""
        self.check()
        try:
            self._links[to].sendall(_HEAD.pack(kind, len(content)))
            self._links[to].sendall(content)
        except OSError:
            with self._news:  # one that has ended needs nothing more; its last word may still be on its way
                self._news.wait_for(lambda: self._dead is not None or to in self._ended)
            self.check()

    def receive(self, of: int, size: int) -> bytearray:
        """The next bytes from another one.

        Args:
            of: which.
            size: how many they must be.

        Raises:
            ProcessError: one has died, or that one has ended or sends something else.
        """
        found = self._next(of, _CONTENT)
        if len(found) != size:
            raise self._astray(of, f"{len(found)} bytes where {size} are due")
        return found

    def _next(self, of: int, kind: bytes) -> bytearray:
        """The next message of another one, of one kind: content, or a word of what it does."""
        with self._news:
            self._news.wait_for(lambda: self._inbox[of] or self._dead is not None or of in self._ended)
            self.check()
            if not self._inbox[of]:
                raise ProcessError(f"Process {of}", f"has ended, and process {self.rank} waits for it")
            came, found = self._inbox[of].popleft()
        if came != kind:
            due, size = "content is due", len(found)
            raise self._astray(of, f"a word where {due}" if came == _WORD else f"{size} bytes where a word is due")
        return found

    def _astray(self, other: int, what: str) -> ProcessError:
        return ProcessError(
            f"Process {other}", f"must make the same calls as process {self.rank}, in the same order", what
        )

    def all_say(self, said: str) -> list[str]:
        """What each of them says here, by rank."""
        for other in self._links:
            self.send(other, said.encode(), _WORD)
        return [said if rank == self.rank else self._next(rank, _WORD).decode() for rank in range(self.size)]

    @contextmanager
    def alike(self, what: str) -> Iterator[dict[str, object]]:
        """Checks arguments within it; where it ends all of them go on, or none does: each sends a word to each other.

        Gives what the check notes down by name, in which all must be alike: an array by its bytes.

        Args:
            what: all do.

        Raises:
            ProcessError: in all of them, another one does something else; in the others, one has refused.
        """
        noted: dict[str, object] = {}
        try:
            yield noted
        except Exception as error:
            with suppress(ProcessError):  # of one that has died: this one has an error of its own
                self.all_say(json.dumps({"refused": str(error)}))
            raise
        words = {"call": what, "noted": {name: _in_words(value) for name, value in noted.items()}}
        said = [json.loads(one) for one in self.all_say(json.dumps(words))]
        for rank, other in enumerate(said):
            if "refused" in other:
                raise ProcessError(f"Process {rank}", f"has refused {what}", other["refused"], next_step=_EVERYWHERE)
        first = said[0]
        for rank, other in enumerate(said):
            if other["call"] != first["call"]:
                rule = f"must make the same calls as process 0, which makes {first['call']}"
                raise ProcessError(f"Process {rank}", rule, other["call"], next_step=_EVERYWHERE)
            for name in {**first["noted"], **other["noted"]}:
                one, its = (found["noted"].get(name, "nothing") for found in (first, other))
                if one != its:
                    rule = f"must have the same {name} as process 0 in {what}, {one}"
                    raise ProcessError(f"Process {rank}", rule, its, next_step=_EVERYWHERE)

    def give_up(self, why: object) -> None:
        """Says that this one cannot finish what all have begun: nobody computes with it any more."""
        if self._dead is None:
            text = str(why) or type(why).__name__
            self._fail(self.rank, text)
            for link in self._links.values():
                with suppress(OSError):
                    link.sendall(_HEAD.pack(_LOST, len(text.encode())) + text.encode())

    def check(self) -> None:
        """Raises ProcessError if one of them has died, or could not finish a call."""
        if self._dead is not None and self._why:
            rule = "could not finish a call that all had begun"
            raise ProcessError(f"Process {self._dead}", rule, self._why, next_step="Start all of them again")
        if self._dead is not None:
            rule = "must not die while others compute with it"
            raise ProcessError(f"Process {self._dead}", rule, next_step="Start all of them again")

    def on_failure(self, alarm: Callable[[], None]) -> None:
        """Has something done, by any thread, as soon as one of them has died."""
        self._alarms.append(alarm)

    def close(self) -> None:
        """Says goodbye, and who has died: those who still wait for this one are told."""
        last = b"" if self._dead is None else f"{self._dead} {self._why}".encode()
        for other, link in self._links.items():
            try:
                if other not in self._ended:
                    link.sendall(_HEAD.pack(_END, len(last)) + last)
                link.shutdown(socket.SHUT_WR)
            except OSError:
                pass

    def __repr__(self) -> str:
        return f"<process {self.rank} of {self.size}>"

    def _listen(self, other: int) -> None:
        with self._links[other] as link:
            while (message := _read(link)) is not None:
                kind, content = message
                if kind == _LOST:
                    self._fail(other, content.decode())
                    continue
                if kind == _END and content:
                    dead, _, why = content.decode().partition(" ")
                    self._fail(int(dead), why)
                with self._news:
                    if kind != _END:
                        self._inbox[other].append((kind, content))
                    else:
                        self._ended.add(other)
                    self._news.notify_all()
        if other not in self._ended:
            self._fail(other)

    def _fail(self, other: int, why: str = "") -> None:
        with self._news:
            if self._dead is None:
                self._dead, self._why = other, why
                for alarm in self._alarms:
                    alarm()
            self._news.notify_all()


def alike(processes: Processes | None, what: str) -> AbstractContextManager[dict[str, object]]:
    """`Processes.alike`, where there are several."""
    return nullcontext({}) if processes is None else processes.alike(what)


def _in_words(value: object) -> str:
    """A value, of whose content a digest is enough where that is long."""
    from numpy import ndarray

    if not isinstance(value, ndarray):
        return str(value)
    return f"{value.dtype} of shape {value.shape} with digest {sha256(value.tobytes()).hexdigest()[:12]}"


def _close(processes: weakref.ref[Processes]) -> None:
    found = processes()
    if found is not None:
        found.close()


def join(
    group: Any = None, *, rank: int | None = None, size: int | None = None, seconds: float = SECONDS
) -> Processes:  # fmt: skip
    """Joins the processes that compute together: `gen.join("10.0.0.1:29500", rank=0, size=4)`, in each of them.

    Args:
        group: the address at which the first one listens, `"HOST:PORT"`, to be reached by trusted machines alone; or a
            communicator of mpi4py, or a group of torch.distributed; or None: those of torch.distributed, JAX or
            mpi4py, whichever the program has started.
        rank: the number of this one, from 0, with an address.
        size: how many there are, with an address.
        seconds: in which all must have come.

    Raises:
        ArgumentError: there is no such group.
        ProcessError: some do not come in time, come twice, or have another version of gen, by its sources.
    """
    meeting = _at(group, rank, size) if isinstance(group, str) else _taken(group)
    if not isinstance(group, str) and (rank, size) != (None, None):
        raise ArgumentError("rank and size", "must come with an address alone", next_step="The group says them")
    given: object = seconds  # a caller may give anything
    if not isinstance(given, int | float) or isinstance(given, bool) or not 0 < given <= threading.TIMEOUT_MAX:
        rule = "must be a number of seconds above 0, in which all come"
        raise ArgumentError("seconds", rule, repr(seconds), next_step=f"Leave it out: it is {SECONDS:.0f} then")
    if meeting.size == 1:
        return Processes(0, {})
    limit = time.monotonic() + seconds
    links: dict[int, socket.socket] = {}
    try:
        (_first if meeting.rank == 0 else _other)(meeting, limit, links)
    except BaseException:
        for link in links.values():
            link.close()
        raise
    for link in links.values():
        _watch(link)
    return Processes(meeting.rank, links)


def _at(address: str, rank: int | None, size: int | None) -> Meeting:
    host, _, port = address.rpartition(":")
    if not _may_name_a_host(host) or not port.isdecimal() or int(port[:6]) > _LAST_PORT:
        raise ArgumentError("group", "must be HOST:PORT, where the first process listens", repr(address))
    right = type(rank) is int and type(size) is int and 0 <= rank < size
    if not right or rank is None or size is None:
        raise ArgumentError("rank and size", "must be numbers, 0 <= rank < size, with an address", (rank, size))
    return Meeting(rank, size, None, (host.strip("[]"), int(port)))


def _may_name_a_host(text: str) -> bool:
    """Whether the system can be asked for it."""
    try:
        return bool(text.encode("idna")) and "\0" not in text
    except UnicodeError:  # of a part that is empty or too long
        return False


def _taken(group: Any) -> Meeting:
    """The group of another library."""
    torch, jax, mpi = (sys.modules.get(name) for name in ("torch.distributed", "jax", "mpi4py.MPI"))
    if (mpi is not None and isinstance(group, mpi.Comm)) or hasattr(group, "Get_rank"):
        return _of_mpi(group)
    if torch is not None and torch.is_available() and torch.is_initialized():
        source = 0 if group is None else torch.get_global_rank(group, 0)

        def tell(address: str) -> str:
            told = [address]
            torch.broadcast_object_list(told, src=source, group=group)
            return told[0]

        return Meeting(torch.get_rank(group), torch.get_world_size(group), tell, (_own_host(), 0))
    if group is None and jax is not None and jax.distributed.is_initialized():
        return Meeting(jax.process_index(), jax.process_count(), _tell_by_jax, (_own_host(), 0))
    if group is None and mpi is not None and mpi.Is_initialized():
        return _of_mpi(mpi.COMM_WORLD)
    rule = "must be an address, or a group of torch.distributed or mpi4py, or one of these or JAX must be started"
    next_step = 'Name the first process: gen.join("HOST:PORT", rank=0, size=4)'
    raise ArgumentError("group", rule, None if group is None else type(group).__name__, next_step=next_step)


def _of_mpi(group: Any) -> Meeting:
    return Meeting(group.Get_rank(), group.Get_size(), lambda address: str(group.bcast(address, 0)), (_own_host(), 0))


def _tell_by_jax(address: str) -> str:
    import numpy as np
    from jax.experimental import multihost_utils

    said = np.frombuffer(address.encode().ljust(_ADDRESS_BYTES), np.uint8)
    return bytes(np.asarray(multihost_utils.broadcast_one_to_all(said), np.uint8)).decode().strip()


def _own_host() -> str:
    """The address of this machine on the network that others are reached by."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as found:
        try:
            found.connect(("192.0.2.1", 9))  # of documentation: nothing is sent
            return str(found.getsockname()[0])
        except OSError:  # there is no network
            return "127.0.0.1"


def _first(meeting: Meeting, limit: float, links: dict[int, socket.socket]) -> None:
    """Has the others come, notes their connections, and tells them of each other."""
    try:
        listener = _listener(meeting.address)
    except OSError as error:
        where = ":".join(map(str, meeting.address))
        next_step = "Name an address of the machine of process 0, with a port that is free"
        raise ProcessError("Process 0", f"must be able to listen at {where}", error, next_step=next_step) from error
    with listener:
        if meeting.tell is not None:
            meeting.tell(f"{meeting.address[0]}:{listener.getsockname()[1]}")
        places: dict[int, Any] = {}
        problem = ""
        while len(links) < meeting.size - 1 and not problem:
            accepted = _accepted(listener, limit)
            if accepted is None:
                away = [n for n in range(1, meeting.size) if n not in links]
                problem = f"processes {away} did not come in time"
                break
            link, said = accepted
            number = said.get("rank", -1)
            if said.get("gen") != exact_version():
                problem = f"process {number} has gen {said.get('gen')}, and process 0 has {exact_version()}"
            elif said.get("size") != meeting.size or number not in range(1, meeting.size):
                problem = f"process {number} of {said.get('size')} came to {meeting.size} processes"
            elif number in links:
                problem = f"process {number} came twice"
            else:
                links[number], places[number] = link, said["place"]
                continue
            _say(link, {"problem": problem})
            link.close()
        for link in links.values():
            _say(link, {"problem": problem, "places": places})
    if problem:
        raise ProcessError("All processes", "must come, each once, with the same version", problem)


def _other(meeting: Meeting, limit: float, links: dict[int, socket.socket]) -> None:
    """Comes to the first one, and then to those before it; those after it come to it. Notes their connections."""
    host, port = meeting.address
    if meeting.tell is not None:
        host, _, text = meeting.tell("").rpartition(":")
        port = int(text)
    first = links[0] = _connected((host, port), limit)
    own = first.getsockname()[0]
    with _listener((own, 0)) as listener:
        said = {"rank": meeting.rank, "size": meeting.size, "gen": exact_version()}
        _say(first, {**said, "place": [own, listener.getsockname()[1]]})
        first.settimeout(max(limit - time.monotonic(), 0.1))
        found = _heard(first)
        if found is None or found["problem"]:
            problem = "process 0 has ended or did not answer" if found is None else found["problem"]
            raise ProcessError("All processes", "must come, each once, with the same version", problem)
        for number in range(1, meeting.rank):
            links[number] = _connected(tuple(found["places"][str(number)]), limit)
            _say(links[number], {"rank": meeting.rank})
        for _ in range(meeting.rank + 1, meeting.size):
            accepted = _accepted(listener, limit)
            if accepted is None:
                raise ProcessError("All processes", "must reach each other", f"nobody came to process {meeting.rank}")
            links[accepted[1]["rank"]] = accepted[0]


def _listener(address: tuple[str, int]) -> socket.socket:
    """What listens at an address, of either version of IP."""
    return socket.create_server(address, family=socket.AF_INET6 if ":" in address[0] else socket.AF_INET)


def _connected(address: tuple[str, int], limit: float) -> socket.socket:
    """A connection to where somebody listens, now or soon."""
    while True:
        try:
            link = socket.create_connection(address, max(limit - time.monotonic(), 0.1))
            if link.getsockname() != link.getpeername():
                return link
            link.close()  # where nobody listens, the system may have given its own end this very port
        except OSError as error:
            if time.monotonic() > limit:
                where = ":".join(map(str, address))
                next_step = "Start all of them within the seconds that gen.join waits, with the address of process 0"
                raise ProcessError("Another process", f"must listen at {where}", error, next_step=next_step) from error
            time.sleep(0.05)


def _accepted(listener: socket.socket, limit: float) -> tuple[socket.socket, dict[str, Any]] | None:
    """The next one that comes, and what it says; None if nobody does in time."""
    while (left := limit - time.monotonic()) > 0:
        listener.settimeout(left)
        try:
            link, _ = listener.accept()
        except TimeoutError:
            return None
        link.settimeout(max(limit - time.monotonic(), 0.1))
        said = _heard(link)
        if said is not None and type(said.get("rank")) is int:
            return link, said
        link.close()  # of somebody else
    return None


def _watch(link: socket.socket) -> None:
    """Lets the system notice in seconds that a machine is gone, of which no word comes any more."""
    link.settimeout(None)
    options: Sequence[tuple[int, str, int]] = (
        (socket.SOL_SOCKET, "SO_KEEPALIVE", 1), (socket.IPPROTO_TCP, "TCP_KEEPIDLE", _SILENT_S),
        (socket.IPPROTO_TCP, "TCP_KEEPINTVL", 1), (socket.IPPROTO_TCP, "TCP_KEEPCNT", _PROBES),
        (socket.IPPROTO_TCP, "TCP_USER_TIMEOUT", 1000 * (_SILENT_S + _PROBES)),
        (socket.IPPROTO_TCP, "TCP_NODELAY", 1),
    )  # fmt: skip
    for level, name, value in options:
        if hasattr(socket, name):
            link.setsockopt(level, getattr(socket, name), value)


def _say(link: socket.socket, said: Mapping[str, Any]) -> None:
    content = json.dumps(said).encode()
    link.sendall(_HEAD.pack(_CONTENT, len(content)) + content)


def _heard(link: socket.socket) -> dict[str, Any] | None:
    """What somebody says; None if it is nothing that is said here."""
    try:
        message = _read(link, 1 << 20)
        found = None if message is None else json.loads(message[1])
    except ValueError:
        return None
    return found if isinstance(found, dict) else None


def _read(link: socket.socket, most: int = 1 << 62) -> tuple[bytes, bytearray] | None:
    """The next message; None if no more come, or it is longer than may be."""
    head = _exactly(link, _HEAD.size)
    if head is None:
        return None
    kind, size = _HEAD.unpack(head)
    content = _exactly(link, size) if size <= most else None
    return None if content is None else (kind, content)


def _exactly(link: socket.socket, size: int) -> bytearray | None:
    content = bytearray(size)
    view, place = memoryview(content), 0
    while place < size:
        try:
            count = link.recv_into(view[place:])
        except OSError:
            return None
        if not count:
            return None
        place += count
    return content
