"""The libraries that the public cases are compared with: those of `gen compare`, and what nobody calls from Python."""

from __future__ import annotations

from bench.peers.cub import Cub
from bench.peers.cublas import Geam
from bench.peers.plain import Plain
from bench.peers.torch_compile import FastestTorchCompile
from gen.compare.peers.base import Peer
from gen.compare.peers.cupy import Cupy, CupyxNdimage
from gen.compare.peers.jax import Jax
from gen.compare.peers.torch import Torch

PEERS: tuple[Peer, ...] = (
    Torch(), FastestTorchCompile(), Cupy(), CupyxNdimage(), Cub(), Geam(), Jax(), Plain()
)  # fmt: skip
