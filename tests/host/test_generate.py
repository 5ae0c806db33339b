"""The folder of emitted kernels: written when it must, removed when it is gen's, and compared."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from gen.emit.folder import all_of_catalogue, base_of_catalogue, differences, generate, read, texts, write_if_changed
from gen.emit.render import MARK, render
from gen.errors import GenError
from gen.families import FAMILIES
from gen.families.names import find_variant
from gen.store import folder
from gen.store.winners import read_winners

CHECKOUT = Path(__file__).parents[2]
FILES = {"a.cu": f"// a\n//\n// {MARK}\nint a;\n", "b.cu": f"// b\n//\n// {MARK}\nint b;\n", "specs.json": "{}\n"}


def times(folder: Path) -> dict[str, int]:
    return {path.name: path.stat().st_mtime_ns for path in folder.iterdir()}


def age(folder: Path) -> None:
    """Makes all files look old, so that any write shows."""
    for path in folder.iterdir():
        os.utime(path, ns=(1, 1))


def test_a_new_folder_is_made_and_filled(tmp_path: Path) -> None:
    folder = tmp_path / "deep" / "out"
    done = generate(folder, FILES)
    assert (done.changed, done.unchanged, done.removed) == (("a.cu", "b.cu", "specs.json"), (), ())
    assert {path.name: path.read_text() for path in folder.iterdir()} == FILES
    assert differences(folder, FILES) == ""


def test_unchanged_files_are_left_alone(tmp_path: Path) -> None:
    generate(tmp_path, FILES)
    age(tmp_path)
    done = generate(tmp_path, FILES)
    assert (done.changed, done.unchanged, done.removed) == ((), ("a.cu", "b.cu", "specs.json"), ())
    assert set(times(tmp_path).values()) == {1}


@pytest.mark.parametrize("spoiled", ["", "int a;\r\n", f"// {MARK}\r\nint a;\r\n", "other\n", FILES["a.cu"] + "\n"])
def test_only_what_changed_is_written(tmp_path: Path, spoiled: str) -> None:
    generate(tmp_path, FILES)
    (tmp_path / "a.cu").write_bytes(spoiled.encode())
    age(tmp_path)
    assert differences(tmp_path, FILES) != ""
    assert generate(tmp_path, FILES).changed == ("a.cu",)
    assert {name for name, time in times(tmp_path).items() if time != 1} == {"a.cu"}
    assert (tmp_path / "a.cu").read_bytes() == FILES["a.cu"].encode()
    assert differences(tmp_path, FILES) == ""


def test_what_a_killed_process_left_half_written_is_removed_an_hour_later(tmp_path: Path) -> None:
    left, young = f".{'0a' * 16}.tmp", f".{'1b' * 16}.tmp"
    others = (".a.cu.part", ".hidden.2024", f"{'0a' * 16}.tmp", ".0a.tmp", young)
    for name in (left, *others):
        (tmp_path / name).write_text("half")
    age(tmp_path)
    (tmp_path / young).touch()  # whoever writes it may still be at it
    generate(tmp_path, FILES)
    assert {path.name for path in tmp_path.iterdir()} == {*FILES, *others}


def test_only_kernels_that_gen_wrote_are_removed(tmp_path: Path) -> None:
    foreign = {
        "mine.cu": b"int mine;\n",
        "copy_of_b.cu": FILES["b.cu"].encode(),
        "latin.cu": "// caf\u00e9\n".encode("latin-1"),
        "notes.txt": MARK.encode(),
        "tuned.json": MARK.encode(),
        ".clang-format": b"",
    }
    generate(tmp_path, FILES)
    for name, content in foreign.items():
        (tmp_path / name).write_bytes(content)
    (tmp_path / "folder.cu").mkdir()
    only_a = {"a.cu": FILES["a.cu"]}
    said = differences(tmp_path, only_a)
    assert "b.cu" in said
    assert "gen would remove it" in said
    assert all(name not in said for name in (*foreign, "folder.cu", "specs.json"))
    assert generate(tmp_path, only_a).removed == ("b.cu",)
    assert {name: (tmp_path / name).read_bytes() for name in foreign} == foreign
    assert (tmp_path / "folder.cu").is_dir()
    assert not (tmp_path / "b.cu").exists()
    assert differences(tmp_path, only_a) == ""


def test_a_difference_is_a_unified_diff(tmp_path: Path) -> None:
    generate(tmp_path, FILES)
    (tmp_path / "a.cu").write_text(f"// {MARK}\nint changed;\n")
    (tmp_path / "b.cu").unlink()
    said = differences(tmp_path, FILES)
    assert f"--- {tmp_path / 'a.cu'}\n+++ a.cu as gen would write it\n" in said
    assert "-int changed;\n+int a;\n" in said
    assert "+int b;\n" in said
    assert "specs.json" not in said


def test_comparing_changes_nothing(tmp_path: Path) -> None:
    assert differences(tmp_path / "absent", FILES) != ""
    assert list(tmp_path.iterdir()) == []


def test_a_file_appears_whole_or_not_at_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    generate(tmp_path, FILES)

    def fail(_self: Path, _target: Path) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "replace", fail)
    with pytest.raises(GenError, match=r"a\.cu cannot be written \(got No space left on device\)\. Make room, or name"):
        write_if_changed(tmp_path / "a.cu", "new")
    assert {path.name for path in tmp_path.iterdir()} == FILES.keys()
    assert (tmp_path / "a.cu").read_text() == FILES["a.cu"]


def test_a_folder_that_cannot_be_one_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(GenError, match="file"):
        generate(tmp_path / "file", FILES)
    (tmp_path / "out" / "a.cu").mkdir(parents=True)
    with pytest.raises(GenError, match=r"a\.cu cannot be"):
        generate(tmp_path / "out", FILES)


def test_reading_gives_text_or_none_or_an_error(tmp_path: Path) -> None:
    assert read(tmp_path / "absent") is None
    (tmp_path / "binary").write_bytes(b"\xff")
    with pytest.raises(GenError, match="cannot be read as text"):
        read(tmp_path / "binary")
    with pytest.raises(GenError, match=r"cannot be read as text \(got Is a directory\)"):
        read(tmp_path)


def test_a_folder_holds_a_file_for_each_variant() -> None:
    variants = base_of_catalogue(FAMILIES)
    files = texts(variants)
    assert files.keys() == {f"{made.name}.cu" for made in variants}
    assert all(files[f"{made.name}.cu"] == render(made) for made in variants)


def test_every_spec_has_a_base_and_all_are_legal_variants() -> None:
    variants = base_of_catalogue(FAMILIES)
    assert {made.spec for made in variants} == {spec for family in FAMILIES for spec in family.catalogue}
    assert set(variants) <= set(all_of_catalogue(FAMILIES))
    assert len(set(variants)) == len(variants)


def test_the_committed_folder_is_what_gen_would_write() -> None:
    out = CHECKOUT / "out"
    known = folder.read_specs(out)
    winners = [find_variant(FAMILIES, winner.variant, known) for winner in read_winners(out)]
    variants = tuple(dict.fromkeys((*base_of_catalogue(FAMILIES), *winners)))
    assert differences(out, texts(variants)) == ""


def test_the_committed_folder_is_small() -> None:
    files = [path for path in (CHECKOUT / "out").iterdir() if path.is_file()]
    assert len(files) <= 60  # base for each shape class, and the winners of two GPUs
    assert sum(path.stat().st_size for path in files) < 500_000
