"""What calling a kernel needs of a device, and no more: implemented by a GPU, and by a fake in tests.

Streams are the driver's handles; 1 is the legacy default stream, 2 the calling thread's own.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from typing import Protocol, runtime_checkable

from gen.families.base import Array, Extents, Limits, Variant
from gen.families.plans import Step

LEGACY_STREAM = 1
PER_THREAD_STREAM = 2


class Held(Protocol):
    """Bytes on a device, given back with the object; the device waits for the work that still uses them."""

    @property
    def address(self) -> int:
        """Of the first byte, a multiple of 256."""
        ...

    @property
    def size(self) -> int:
        """In bytes."""
        ...


class Prepared(Protocol):
    """Every launch of one call at fixed sizes. One thread at a time may use it."""

    def launch(self, addresses: Mapping[str, int], numbers: Mapping[str, bytes], stream: int) -> None:
        """Queues them all: operands and scratch by address, operands that are numbers as their types store them.

        Raises RunError if the device refuses one.
        """
        ...


class Code(Protocol):
    """A variant's machine code, loaded."""

    def prepare(self, extents: Extents, steps: Sequence[Step]) -> Prepared:
        """Makes the launches of a call ready to be repeated."""
        ...


@runtime_checkable
class Backend(Protocol):
    """A device. Every method but `enter` wants to be called between `enter` and `leave`.

    Attributes:
        index: the driver's number of it.
        name: what the driver calls it.
        driver: the driver's version.
        limits: what the device allows.
    """

    index: int
    name: str
    driver: str
    limits: Limits

    def enter(self) -> bool:
        """Makes the device this thread's current one. Gives what `leave` wants to know."""
        ...

    def leave(self, entered: bool) -> None:
        """Puts back what was current before."""
        ...

    def load(self, variant: Variant, text: str) -> Code:
        """Compiles and loads a variant's text; the same text is loaded once."""
        ...

    def allocate(self, size: int) -> Held:
        """Memory of so many bytes, also while a stream is capturing. Raises DeviceError if there is none left."""
        ...

    def zero(self, address: int, size: int, stream: int) -> None:
        """Queues setting bytes to 0."""
        ...

    def upload(self, address: int, content: Array, stream: int) -> None:
        """Queues copying a contiguous array to the device."""
        ...

    def download(self, content: Array, address: int, stream: int) -> None:
        """Queues copying from the device into a contiguous array."""
        ...

    def synchronize(self, stream: int) -> None:
        """Waits for all that is queued there. Raises RunError if a launch failed on the way."""
        ...

    def wait(self, stream: int, other: int) -> None:
        """Lets later work on `stream` wait for what is now queued on `other`."""
        ...

    def device_of(self, address: int) -> int | None:
        """The number of the device that an address belongs to; None if it is no memory of the driver's."""
        ...

    def capture_of(self, stream: int) -> int:
        """A number for the graph that a stream is being captured into, never used again; 0 if there is none."""
        ...

    def identity_of(self, stream: int) -> Hashable:
        """What distinguishes a stream from all others, also from one that has its handle later."""
        ...
