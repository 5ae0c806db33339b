"""Inline PTX does on the device what the CPU run says it does."""

from __future__ import annotations

import numpy as np

from gen.families.plans import Step
from gen.gpu.cuda import CudaDevice
from gen.gpu.device import LEGACY_STREAM, bytes_at
from gen.toolchain.nvrtc import Nvrtc
from tests.host.test_ptx import EXECUTED, WORDS, text_of

ONE = (1, 1, 1)


def test_the_cpu_run_executes_ptx_as_the_device_does(device: CudaDevice, compiler: Nvrtc) -> None:
    texts = [text_of(body).replace("NAME", f"executed_{place}") for place, (body, _) in enumerate(EXECUTED)]
    code = device.load(compiler.compile("executed", "".join(texts), device.limits.arch))
    source, result = device.allocate(WORDS.nbytes), device.allocate(WORDS.nbytes)
    device.upload(source.address, WORDS)
    addresses = {"source": source.address, "result": result.address}
    for place, (body, expected) in enumerate(EXECUTED):
        device.upload(result.address, np.zeros_like(WORDS))
        step = Step(f"_{place}", ONE, ONE, ("source", "result"), 0, ONE, setup=False)
        code.prepare({}, [step]).launch(addresses, {}, LEGACY_STREAM)
        device.synchronize()
        words = bytes_at(device, result.address, WORDS.nbytes).view(np.uint32)
        assert words.tolist()[: len(expected)] == expected, body
