"""The libraries that gen is measured against, one module each; imported only when they are asked for."""

from __future__ import annotations

from collections.abc import Iterable
from importlib import import_module
from typing import Any, cast

from bench.peers.base import Peer
from gen.families.names import unknown

# Every module has one `PEER`.
MODULES = {
    "torch": "torch_eager",
    "torch.compile": "torch_compiled",
    "cupy": "cupy_arrays",
    "cupyx": "cupyx_ndimage",
    "cub": "cub",
    "cublas": "cublas_geam",
    "jax": "jax_jit",
    "plain": "plain",
}


def names(wanted: Iterable[str] | None) -> tuple[str, ...]:
    """The peers that are meant, in the order of MODULES; None for all. Raises UnknownNameError for any other name."""
    if wanted is None:
        return tuple(MODULES)
    asked = tuple(wanted)
    for name in asked:
        if name not in MODULES:
            raise unknown("The peer", name, list(MODULES))
    return tuple(name for name in MODULES if name in asked)


def find(name: str) -> Peer:
    """The peer of a name; its library is not imported yet."""
    found: Any = import_module(f"bench.peers.{MODULES[name]}")
    return cast(Peer, found.PEER)
