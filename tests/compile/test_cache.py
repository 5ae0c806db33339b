"""Entries come back as they were put, or not at all."""

from __future__ import annotations

import ctypes
import logging
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gen.errors import StoreError
from gen.toolchain import cache as module
from gen.toolchain.cache import Cache, content_key

KEY = content_key({"test": "entry"})
CONTENT = b"what was compiled" * 1000
CHECKOUT = Path(__file__).parents[2]

parts = st.one_of(st.text(max_size=4), st.binary(max_size=4), st.integers(), st.lists(st.text(max_size=2), max_size=3))


def never() -> bytes:
    raise AssertionError("it was made again")


@given(st.dictionaries(st.text(max_size=3), parts, max_size=3), st.dictionaries(st.text(max_size=3), parts, max_size=3))
def test_keys_are_equal_only_for_equal_parts(one: dict[str, module.Part], other: dict[str, module.Part]) -> None:
    same = {label: (type(part), part) for label, part in one.items()} == {
        label: (type(part), part) for label, part in other.items()
    }
    assert (content_key(one) == content_key(other)) == same


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ({"a": "bc"}, {"ab": "c"}),
        ({"a": "1"}, {"a": 1}),
        ({"a": "1"}, {"a": b"1"}),
        ({"a": "b"}, {"a": ["b"]}),
        ({"a": ["b", "c"]}, {"a": ["bc"]}),
        ({"a": []}, {}),
        ({"a": "1:b"}, {"a": "", "b": ""}),
    ],
)
def test_parts_do_not_run_into_each_other(one: dict[str, module.Part], other: dict[str, module.Part]) -> None:
    assert content_key(one) != content_key(other)


def test_the_order_of_parts_does_not_matter() -> None:
    assert content_key({"a": "1", "b": "2"}) == content_key({"b": "2", "a": "1"})


def test_a_new_schema_changes_every_key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "SCHEMA", module.SCHEMA + 1)
    assert content_key({"test": "entry"}) != KEY


@pytest.mark.parametrize("content", [b"", b"\0", CONTENT])
def test_content_comes_back(tmp_path: Path, content: bytes) -> None:
    cache = Cache(tmp_path / "new" / "folder", ".bin")
    assert cache.read(KEY) is None
    assert cache.fetch(KEY, lambda: content) == content
    assert cache.fetch(KEY, never) == content
    assert cache.file(KEY) == cache.write(KEY, content)


def test_what_fails_is_not_kept(tmp_path: Path) -> None:
    with pytest.raises(ZeroDivisionError):
        Cache(tmp_path).fetch(KEY, lambda: bytes(1 // 0))
    assert list(tmp_path.rglob("*")) == []


def damage(path: Path, how: str) -> None:
    raw = path.read_bytes()
    match how:
        case "cut short":
            path.write_bytes(raw[:-1])
        case "cut at the content":
            path.write_bytes(CONTENT)
        case "empty":
            path.write_bytes(b"")
        case "one bit":
            path.write_bytes(bytes([raw[0] ^ 1]) + raw[1:])
        case "longer":
            path.write_bytes(raw + b"\0")
        case "a folder":
            path.unlink()
            path.mkdir()


@pytest.mark.parametrize("how", ["cut short", "cut at the content", "empty", "one bit", "longer", "a folder"])
def test_a_corrupt_entry_is_set_aside_and_made_again(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, how: str
) -> None:
    cache = Cache(tmp_path, ".bin")
    path = cache.write(KEY, CONTENT)
    damage(path, how)
    with caplog.at_level(logging.WARNING):
        assert cache.file(KEY) is None
    assert path.with_name(path.name + ".corrupt").exists()
    assert "corrupt" in caplog.text
    assert cache.fetch(KEY, lambda: CONTENT) == CONTENT
    assert cache.fetch(KEY, never) == CONTENT


def test_an_entry_can_be_corrupt_twice(tmp_path: Path) -> None:
    cache = Cache(tmp_path)
    for _ in range(2):
        cache.write(KEY, CONTENT).write_bytes(b"")
        assert cache.fetch(KEY, lambda: CONTENT) == CONTENT


def test_a_folder_that_cannot_be_written_is_an_error_in_words(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    says = r"/file/\S+ cannot be written \(got Not a directory\)\. Name another folder with --home or \$GEN"
    with pytest.raises(StoreError, match=says):
        Cache(tmp_path / "file").write(KEY, CONTENT)


def test_a_corrupt_entry_that_cannot_be_set_aside_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cache = Cache(tmp_path)
    path = cache.write(KEY, CONTENT)
    path.write_bytes(b"")

    def fail(_self: Path, _target: Path) -> None:
        raise OSError(30, "Read-only file system")

    monkeypatch.setattr(Path, "replace", fail)
    with pytest.raises(StoreError, match=rf"{path} cannot be read, .* \(got Read-only file system\)\. Remove it"):
        cache.read(KEY)


def test_no_temporary_file_is_left(tmp_path: Path) -> None:
    path = Cache(tmp_path).write(KEY, CONTENT)
    assert list(path.parent.iterdir()) == [path]
    path.unlink()
    path.mkdir()
    (path / "in the way").touch()
    with pytest.raises(StoreError):
        Cache(tmp_path).write(KEY, CONTENT)
    assert list(path.parent.iterdir()) == [path]


def test_what_a_killed_process_left_half_written_goes_an_hour_later(tmp_path: Path) -> None:
    code = (
        "import os, signal, sys, pathlib\n"
        "from gen.toolchain.cache import Cache\n"
        "pathlib.Path.replace = lambda *_: os.kill(os.getpid(), signal.SIGKILL)\n"
        "Cache(pathlib.Path(sys.argv[1])).write(sys.argv[2], b'half')\n"
    )
    subprocess.run([sys.executable, "-c", code, str(tmp_path), KEY], check=False, cwd=CHECKOUT)
    (left,) = (path for path in tmp_path.rglob("*") if path.is_file())
    kept = Cache(tmp_path).write(KEY, CONTENT)
    assert set(left.parent.iterdir()) == {left, kept}  # somebody may be writing it
    os.utime(left, (0, 0))
    Cache(tmp_path).write(KEY, CONTENT)
    assert set(left.parent.iterdir()) == {kept}


def test_threads_that_read_write_and_damage_see_whole_entries(tmp_path: Path) -> None:
    cache = Cache(tmp_path, ".bin")

    def work(turn: int) -> bytes:
        if turn % 10 == 0:
            cache.write(KEY, CONTENT).write_bytes(CONTENT[: turn * 10])
        return cache.fetch(KEY, lambda: CONTENT)

    with ThreadPoolExecutor(8) as pool:
        assert set(pool.map(work, range(400))) == {CONTENT}


def test_processes_share_a_folder(tmp_path: Path) -> None:
    code = (
        "import sys; from pathlib import Path; from gen.toolchain.cache import Cache, content_key\n"
        "cache = Cache(Path(sys.argv[1]))\n"
        "for number in range(300):\n"
        "    key = content_key({'number': number % 20})\n"
        "    content = bytes([number % 20]) * 50_000\n"
        "    assert cache.fetch(key, lambda: content) == content\n"
        "    if number % 7 == 0: cache.file(key) and cache.write(key, content)\n"
    )
    command = [sys.executable, "-c", code, str(tmp_path)]
    running = [subprocess.Popen(command, cwd=CHECKOUT, stderr=subprocess.PIPE, text=True) for _ in range(3)]
    for process in running:
        _, said = process.communicate(timeout=60)
        assert process.returncode == 0, said
    entries = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert len(entries) == 20
    assert not [path for path in entries if path.suffix in (".corrupt", ".tmp")]


def test_a_shared_library_loads_straight_from_its_entry(tmp_path: Path) -> None:
    source, library = tmp_path / "answer.c", tmp_path / "answer.so"
    source.write_text('extern "C" int answer() { return 42; }')
    subprocess.run(["g++", "-x", "c++", "-shared", "-fPIC", "-o", library, source], check=True)
    cache = Cache(tmp_path / "cache", ".so")
    cache.write(KEY, library.read_bytes())
    entry = cache.file(KEY)
    assert entry is not None
    assert ctypes.CDLL(str(entry)).answer() == 42
