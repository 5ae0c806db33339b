"""Inline PTX does on the device what the CPU run says it does."""

from __future__ import annotations

import numpy as np

from gen.gpu.device import CudaDevice
from gen.toolchain.nvrtc import Nvrtc
from tests.host.test_ptx import EXECUTED, WORDS, text_of


def test_the_cpu_run_executes_ptx_as_the_device_does(device: CudaDevice, compiler: Nvrtc) -> None:
    texts = [text_of(body).replace("NAME", f"executed_{place}") for place, (body, _) in enumerate(EXECUTED)]
    module = device.module(compiler.compile("executed", "".join(texts), device.limits.arch).cubin)
    source, result = device.allocate(WORDS.nbytes), device.allocate(WORDS.nbytes)
    device.upload(source.address, WORDS)
    for place, (body, expected) in enumerate(EXECUTED):
        device.upload(result.address, np.zeros_like(WORDS))
        arguments = [("P", source.address), ("P", result.address)]
        module.function(f"executed_{place}").launch((1, 1, 1), (1, 1, 1), arguments)
        device.synchronize()
        words = device.download(result.address, WORDS.nbytes).view(np.uint32)
        assert words.tolist()[: len(expected)] == expected, body
