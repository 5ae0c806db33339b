"""The PTX that the CPU run executes is PTX: the GPU's compiler takes all that the tests of the CPU run hold."""

from __future__ import annotations

from gen.toolchain.nvrtc import Nvrtc
from tests.faults import copies, ptx
from tests.host.test_planted import planted_text
from tests.host.test_ptx import EXECUTED, text_of


def test_all_that_is_executed_on_the_cpu_compiles() -> None:
    bodies = dict.fromkeys(
        body for planted in (*copies.PLANTED, *ptx.PLANTED) for body in (planted.faulty, planted.clean)
    )
    texts = [planted_text(f"planted_{place}", body, "") for place, body in enumerate(bodies)]
    texts += [text_of(body).replace("NAME", f"executed_{place}") for place, (body, _) in enumerate(EXECUTED)]
    compiled = Nvrtc(None).compile("ptx", copies.BEFORE + "".join(texts), "sm_90")
    assert len(compiled.resources) == len(texts)
