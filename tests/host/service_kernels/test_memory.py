"""Kernels that fill, copy and read memory touch every word of it and nothing behind."""

from __future__ import annotations

import numpy as np
import pytest

from tests.host.service_kernels.given import SIZES, THREADS, Service, each_grid, each_size, words


def test_a_kernel_without_data_touches_none(service: Service) -> None:
    service("empty", 1000)


@pytest.mark.parametrize("opened", [0, 1])
def test_the_gate_ends_when_it_is_opened_and_after_so_many_cycles(service: Service, opened: int) -> None:
    service("gate", 1000, open=np.full(1, opened, np.int32))


@each_size
@each_grid
def test_fill_writes_one_word_everywhere_and_nothing_behind(service: Service, n: int, blocks: int) -> None:
    to = np.zeros(4 * n + 4, np.uint32)
    service("fill", n, blocks=blocks, to=to, seed=0x7FA15A5A)
    assert (to[: 4 * n] == 0x7FA15A5A).all()
    assert (to[4 * n :] == 0).all()


@each_size
@each_grid
def test_copy_copies_whole_vectors(service: Service, n: int, blocks: int) -> None:
    source, to = words(4 * n + 4), np.zeros(4 * n + 4, np.uint32)
    service("copy", n, blocks=blocks, to=to, source=source)
    assert np.array_equal(to[: 4 * n], source[: 4 * n])
    assert (to[4 * n :] == 0).all()


@pytest.mark.parametrize("n", [*SIZES, 3 * 8 * THREADS])
@pytest.mark.parametrize("entry", ["read", "claim"])
def test_read_normally_writes_nothing(service: Service, entry: str, n: int) -> None:
    sink = np.full(1, 42, np.uint32)
    service(entry, n, sink=sink, source=words(4 * n))
    assert sink[0] == 42


LINE = 32  # words of a line of the second-level cache


@each_size
def test_release_changes_nothing(service: Service, n: int) -> None:
    space = np.zeros(4 * n + LINE, np.uint32)  # on a GPU memory begins with a line of the cache
    source = space[-space.ctypes.data % (4 * LINE) // 4 :][: 4 * n]
    source[:] = words(4 * n)
    service("release", n, source=source)
    assert np.array_equal(source, words(4 * n))


LAST = 4 * 8 * THREADS * 2 + 400 - 1  # of two rounds of eight vectors a thread, and some more


@pytest.mark.parametrize(
    "place", [0, 1, 2, 3, 4 * THREADS, 4 * 7 * THREADS + 1, 4 * 8 * THREADS - 1, 4 * 15 * THREADS, LAST - 401, LAST]
)
@pytest.mark.parametrize("entry", ["read", "claim"])
def test_read_folds_every_word(service: Service, entry: str, place: int) -> None:
    source, sink = np.zeros(LAST + 1, np.uint32), np.zeros(1, np.uint32)
    source[place] = 0xDEADBEEF  # the one fold that is written
    service(entry, len(source) // 4, blocks=1, sink=sink, source=source)
    assert sink[0] == 0xDEADBEEF


def test_read_folds_all_words_of_a_thread_together(service: Service) -> None:
    """Every thread's fold is the word: an even number of them cancels, an odd one does not."""
    vectors = 11 * THREADS  # eight loads at once and three more
    source = words(4 * vectors).reshape(11, THREADS, 4)
    source[-1, :, 3] ^= np.bitwise_xor.reduce(source, axis=(0, 2)) ^ np.uint32(0xDEADBEEF)
    for threads in (THREADS, THREADS - 1):
        sink = np.zeros(1, np.uint32)
        source[-1, threads:, 3] ^= 1
        service("read", vectors, blocks=1, sink=sink, source=source.reshape(-1))
        assert sink[0] == (0xDEADBEEF if threads % 2 else 0)
