"""The C++ runtime of the CPU run as Python sees it: the structures of `cuda_on_host/runtime/interface.h`."""

from __future__ import annotations

import ctypes
from pathlib import Path
from typing import ClassVar

from gen.errors import RunError

RULES = {
    "out-of-bounds read": "makes an out-of-bounds read",
    "out-of-bounds write": "makes an out-of-bounds write",
    "misaligned": "makes a misaligned access",
    "write to input": "makes a write to an input",
    "uninitialised read": "makes an uninitialised read",
    "race": "has a data race",
    "read-only path": "uses the read-only path for what the same launch writes",
    "barrier": "has a barrier that not every thread of the block reaches",
    "absent lane": "waits for an absent lane",
    "lanes disagree": "has lanes that disagree on what they wait for",
    "hang": "hangs",
    "signed overflow": "makes a signed overflow",
    "index": "has an index outside its array",
    "division": "makes a division by zero",
    "shift": "makes a shift by more bits than there are",
    "no return": "reaches the end of a function that must return a value",
    "stack overflow": "overflows the stack of a thread",
    "too long": "takes too long",
    "shuffle width": "has a shuffle among lanes that are no power of two up to 32",
    "copy in flight": "touches what is still being copied",
    "cluster barrier": "breaks the rules of its cluster's barrier",
    "lifetime": "reaches into the shared memory of a block that may not be there",
    "conversion": "converts a number to an integer that does not hold it",
    "operand": "gives an instruction an operand that it does not take",
}
"""What a kernel does that breaks a rule, by kind, in the order of the runtime's `Kind`."""
KINDS = ("none", *RULES)

TOUCHED_BY_READ, TOUCHED_BY_WRITE = 1, 2  # marks in `Buffer.touched`
ANY_STEPS = 2**63  # as many as a launch likes
STATIC_SHARED, DYNAMIC_SHARED = -2, -3  # `Fault.buffer` for shared memory


class Index(ctypes.Structure):
    """Block or thread coordinates."""

    _fields_ = [("x", ctypes.c_uint32), ("y", ctypes.c_uint32), ("z", ctypes.c_uint32)]

    def as_tuple(self) -> tuple[int, int, int]:
        """The coordinates as Python numbers."""
        return (int(self.x), int(self.y), int(self.z))


class Level(ctypes.Structure):
    """Rows of an array with gaps between them: bytes from one to the next, and how many of them are the row's."""

    _fields_ = [("pitch", ctypes.c_uint64), ("used", ctypes.c_uint64)]


class Buffer(ctypes.Structure):
    """A range of bytes that a launch may touch."""

    _fields_ = [
        ("low", ctypes.c_uint64),
        ("high", ctypes.c_uint64),
        ("written", ctypes.c_void_p),
        ("touched", ctypes.c_void_p),
        ("touched_pages", ctypes.c_void_p),
        ("writable", ctypes.c_int32),
        ("granule", ctypes.c_int32),
        ("taken", ctypes.c_int32),
        ("level_count", ctypes.c_int32),
        ("levels", ctypes.POINTER(Level)),
    ]


class Access(ctypes.Structure):
    """One access of one thread."""

    _fields_ = [
        ("address", ctypes.c_uint64),
        ("pc", ctypes.c_uint64),
        ("block", ctypes.c_uint32),
        ("thread", ctypes.c_uint16),
        ("bytes", ctypes.c_uint16),
        ("touch", ctypes.c_uint8),
        ("space", ctypes.c_uint8),
        ("read_only", ctypes.c_uint8),
    ]


class CodePlace(ctypes.Structure):
    """A place in the machine code, for one block: how many accesses its threads made there, and how many were noted."""

    _fields_ = [
        ("pc", ctypes.c_uint64),
        ("count", ctypes.c_uint64),
        ("noted", ctypes.c_uint64),
        ("block", ctypes.c_uint32),
    ]


class Trace(ctypes.Structure):
    """Room for the accesses of a launch, in the order in which each thread makes its own.

    All are counted, by place and block. Of the chosen blocks, or all, those are noted for which there is room: of each
    thread at each place so many `together`, of `every` so many times as many. The places are there until the next
    launch.
    """

    _fields_ = [
        ("accesses", ctypes.POINTER(Access)),
        ("capacity", ctypes.c_uint64),
        ("together", ctypes.c_uint32),
        ("every", ctypes.c_uint32),
        ("chosen", ctypes.POINTER(ctypes.c_uint8)),
        ("count", ctypes.c_uint64),
        ("noted", ctypes.c_uint64),
        ("places", ctypes.POINTER(CodePlace)),
        ("place_count", ctypes.c_uint64),
    ]


class Launch(ctypes.Structure):
    """One launch, ready to run."""

    _fields_ = [
        ("enter", ctypes.c_void_p),
        ("arguments", ctypes.c_void_p),
        ("grid", Index),
        ("block", Index),
        ("seed", ctypes.c_uint64),
        ("steps_per_thread", ctypes.c_uint64),
        ("resident_blocks", ctypes.c_uint64),
        ("shared", ctypes.c_void_p),
        ("objects", ctypes.c_char_p),
        ("shared_bytes", ctypes.c_uint64),
        ("dynamic_bytes", ctypes.c_uint64),
        ("buffers", ctypes.POINTER(Buffer)),
        ("buffer_count", ctypes.c_int64),
        ("code", ctypes.c_uint64),
        ("code_bytes", ctypes.c_uint64),
        ("blocks", ctypes.POINTER(ctypes.c_uint64)),
        ("block_count", ctypes.c_uint64),
        ("touched", ctypes.POINTER(ctypes.c_uint64)),
        ("steps", ctypes.c_uint64),
        ("trace", ctypes.POINTER(Trace)),
        ("cluster", Index),
        ("preemptions", ctypes.c_uint64),
    ]


class Fault(ctypes.Structure):
    """What was wrong."""

    _fields_ = [
        ("kind", ctypes.c_int32),
        ("bytes", ctypes.c_int32),
        ("buffer", ctypes.c_int32),
        ("line", ctypes.c_int32),
        ("offset", ctypes.c_int64),
        ("pc", ctypes.c_uint64),
        ("other_pc", ctypes.c_uint64),
        ("block", Index),
        ("thread", Index),
        ("other_block", Index),
        ("other_thread", Index),
        ("text", ctypes.c_char * 200),
        ("divergent_barriers", ctypes.c_uint64),
    ]


class DivergentBarrier(ctypes.Structure):
    """Two threads that came to one barrier by different calls: return addresses, then 0."""

    _fields_ = [
        ("way", ctypes.c_uint64 * 8),
        ("other_way", ctypes.c_uint64 * 8),
        ("block", Index),
        ("thread", Index),
        ("other_thread", Index),
    ]


class Runtime:
    """The runtime's shared object. Kernels are linked with it by name, so it is loaded before them."""

    _loaded: ClassVar[dict[str, Runtime]] = {}

    def __init__(self, library: Path) -> None:
        handle = ctypes.CDLL(str(library))
        self._run = handle.cuda_on_host_run
        self._run.argtypes = (ctypes.POINTER(Launch), ctypes.POINTER(Fault))
        self._run.restype = ctypes.c_int
        self._divergent_barriers = handle.cuda_on_host_divergent_barriers
        self._divergent_barriers.restype = ctypes.POINTER(DivergentBarrier)

    @classmethod
    def load(cls, library: Path) -> Runtime:
        """The runtime of this name, which is its content's: one in a process, whichever cache it came from."""
        if library.name not in cls._loaded:
            cls._loaded[library.name] = cls(library)
        return cls._loaded[library.name]

    def run(self, launch: Launch) -> Fault:
        """Runs one launch. Returns what ended it, of kind 0 if nothing did. Raises RunError if memory is short."""
        fault = Fault()
        status = self._run(ctypes.byref(launch), ctypes.byref(fault))
        if status == 2:
            blocks = launch.grid.x * launch.grid.y * launch.grid.z
            rule = "finds no memory for the stacks, notes and shared memory of a launch"
            raise RunError("The CPU run", rule, f"{blocks} blocks", next_step="Give smaller sizes")
        return fault

    def divergent_barriers(self, fault: Fault) -> list[DivergentBarrier]:
        """Which threads came to a barrier by different calls in the last launch, which this was the outcome of."""
        return list(self._divergent_barriers()[: int(fault.divergent_barriers)]) if fault.divergent_barriers else []
