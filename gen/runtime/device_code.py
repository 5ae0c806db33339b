"""From variants to machine code on a device; texts are kept, since to render the first takes longer than to load it."""

from __future__ import annotations

import hashlib
import json
import threading
from collections.abc import Iterator
from functools import cache, cached_property
from importlib.metadata import version
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Any

from gen.emit.render import render
from gen.errors import StoreError
from gen.families.base import Variant
from gen.gpu.device import Code, Device, DriverFunctions
from gen.paths import templates_root
from gen.runtime.launcher import Launcher, program
from gen.runtime.signature import Signature
from gen.toolchain.cache import Cache, content_key


class Loader:
    """Compiles the texts of variants for a device and loads them, each once. Threads may share one.

    Attributes:
        device: where.
    """

    def __init__(self, device: Device, folder: Path) -> None:
        """Keeps texts, and the program that repeats calls, in a folder."""
        self.device = device
        self._folder = folder
        self._codes: dict[str, Code] = {}
        self._lock = threading.Lock()

    def code(self, made: Variant) -> Code:
        """A variant's machine code; the device must be current."""
        text = text_of(made, self._folder)
        with self._lock:
            if text not in self._codes:
                self._codes[text] = self.device.load(self.device.compile(made.name, text), made)
            return self._codes[text]

    def launcher(self, signature: Signature) -> Launcher | None:
        """What repeats calls; None where this device, machine or spec has no such thing."""
        if self._functions is None or self._program is None or signature.numbers or signature.measured:
            return None
        return Launcher(self._program, self._functions, self.device.index, signature)

    def base(self) -> Any | None:
        """The class to derive from for calls that a launcher gets first; None without one."""
        return None if self._program is None else self._program.Repeating

    @cached_property
    def _functions(self) -> DriverFunctions | None:
        return self.device.driver_functions()

    @cached_property
    def _program(self) -> Any | None:
        return None if self._functions is None else program(self._folder)


def text_of(made: Variant, folder: Path) -> str:
    """The text of a variant: rendered, or found in a folder where it was kept, if no file of gen has changed since."""
    if not type(made.family).__module__.startswith("gen.families."):  # whose files are not known here
        return render(made)
    texts = Cache(folder / "texts", ".cu")
    key = content_key({
        "sources": _digest(), "variant": made.name, "spec": json.dumps(made.spec.to_json(), sort_keys=True),
        "config": json.dumps(made.config.to_json(), sort_keys=True),
    })  # fmt: skip
    try:
        return texts.fetch(key, lambda: render(made).encode()).decode()
    except StoreError:  # a folder that cannot be written to
        return render(made)


@cache
def _digest() -> str:
    """Of all that texts are made of: the templates, and the modules of gen that fill them."""
    content = hashlib.blake2b(version("jinja2").encode())
    gen = files("gen")
    modules = [one for one in gen.iterdir() if one.name.endswith(".py")]
    for name, file in sorted(
        (f"{root.name}/{name}", file)
        for root in (gen / "families", gen / "emit", templates_root())
        for name, file in _files(root)
    ) + sorted((one.name, one) for one in modules):
        text = file.read_bytes()
        content.update(f"{name} {len(text)}\n".encode() + text)
    return content.hexdigest()


def _files(folder: Traversable) -> Iterator[tuple[str, Traversable]]:
    """Every file of a folder, by its path there."""
    for one in folder.iterdir():
        if one.is_dir():
            yield from ((f"{one.name}/{name}", file) for name, file in _files(one))
        elif not one.name.endswith(".pyc"):
            yield one.name, one
