"""The libraries that a user may call instead of gen; each is imported only when it is asked for."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from gen.compare.peers.base import Peer
from gen.compare.peers.cupy import Cupy, CupyxNdimage
from gen.compare.peers.jax import Jax
from gen.compare.peers.torch import Torch, TorchCompile
from gen.families.names import unknown

PEERS: tuple[Peer, ...] = (Torch(), TorchCompile(), Cupy(), CupyxNdimage(), Jax())


def find_peers(wanted: Iterable[str] | None, peers: Sequence[Peer] = PEERS) -> tuple[Peer, ...]:
    """The peers of these names, in the order in which they are known; None for all.

    Raises UnknownNameError for any other name.
    """
    names = [peer.name for peer in peers]
    asked = names if wanted is None else list(wanted)
    for name in asked:
        if name not in names:
            raise unknown("The peer", name, names)
    return tuple(peer for peer in peers if peer.name in asked)
