"""Starts a worker under compute-sanitizer and waits for it."""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from bench.sanitizer.faults import FAULTS
from bench.sanitizer.jobs import Job
from bench.sanitizer.report import ROOT, Outcome, read_report
from gen.errors import MissingToolError

FOUND = 9  # what compute-sanitizer ends with when it found something
GAP = 1024  # bytes that memcheck keeps between allocations, so that an overrun does not end in another array
TIMEOUT, PLANTED_TIMEOUT = 540, 120  # seconds of one tool on one family, or on its planted fault


def arguments_of(sanitizer: str, tool: str, worker: Sequence[str]) -> list[str]:
    """The command line of one run."""
    found = [sanitizer, "--tool", tool, "--error-exitcode", str(FOUND), "--print-limit", "20"]
    if tool == "memcheck":
        # A call of the driver that fails is an error of gen's own. The bindings of CUDA ask a driver older than they
        # are for functions that it has not, which memcheck would count.
        found += ["--padding", str(GAP), "--report-api-errors", "no"]
    return [*found, sys.executable, "-m", "bench.sanitize", "--worker", *worker]


def find_sanitizer() -> str:
    """The path of compute-sanitizer. Raises MissingToolError without one."""
    homes = [os.environ.get(name) for name in ("CUDA_HOME", "CUDA_PATH")] + ["/usr/local/cuda"]
    folders = [os.environ.get("PATH", ""), *(str(Path(home) / "bin") for home in homes if home)]
    found = shutil.which("compute-sanitizer", path=os.pathsep.join(folders))
    if found is None:
        raise MissingToolError(
            "compute-sanitizer", "must be on the PATH, or below $CUDA_HOME or /usr/local/cuda",
            next_step="It comes with the CUDA toolkit; on Debian and Ubuntu: apt install cuda-sanitizer-13-0",
        )  # fmt: skip
    return found


def version_of(sanitizer: str) -> str:
    """Its version: `2025.3.0.0`; `unknown` if it does not say."""
    said = subprocess.run([sanitizer, "--version"], capture_output=True, text=True, check=False).stdout
    found = re.search(r"Version (\d[\w.]*)", said)
    return found[1] if found else "unknown"


def worker_arguments(job: Job, options: argparse.Namespace) -> list[str]:
    """What a worker is told of its job, but where its result goes."""
    worker = ["--tool", job.tool, "--family", job.family, "--cases", str(options.cases)]
    worker += ["--part", str(job.part), "--parts", str(job.parts)]
    name = FAULTS[job.tool].variant if job.planted else options.name
    if name is not None:
        worker += ["--name", name]
    if job.planted:
        return [*worker, "--plant"]
    return [*worker, *(["--algorithm", ",".join(options.algorithm)] if options.algorithm else [])]


def run_one(sanitizer: str, job: Job, options: argparse.Namespace) -> Outcome:
    """Starts one worker under one tool and waits for it."""
    tool, family = job.tool, job.family
    with tempfile.TemporaryDirectory() as folder:
        result = Path(folder) / "result.json"
        worker = [*worker_arguments(job, options), "--result", str(result)]
        start = time.monotonic()
        paths = [str(ROOT), os.environ.get("PYTHONPATH", "")]  # gen need not be installed
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, paths))}
        log = Path(folder) / "log"
        timeout = PLANTED_TIMEOUT if job.planted else TIMEOUT  # a planted fault may make the kernel hang
        status = wait(arguments_of(sanitizer, tool, worker), environment, log, timeout)
        output = log.read_text(encoding="utf-8", errors="replace")
        done = json.loads(result.read_text(encoding="utf-8")) if result.is_file() else None
    seconds = time.monotonic() - start
    return Outcome(tool, family, status, read_report(output), done, output, seconds, str(job), job.planted)


def wait(arguments: Sequence[str], environment: Mapping[str, str], log: Path, timeout: float) -> int | None:
    """Runs a program to its end, what it prints going into a file; its status, or None if it took too long."""
    with log.open("wb") as output:
        process = subprocess.Popen(
            arguments, cwd=ROOT, env=environment, stdout=output, stderr=subprocess.STDOUT, start_new_session=True
        )
        _running.add(process)
        try:
            return process.wait(timeout)
        except subprocess.TimeoutExpired:
            stop(process)
            return None
        finally:
            _running.discard(process)


_running: set[subprocess.Popen[bytes]] = set()


def stop(process: subprocess.Popen[bytes]) -> None:
    """Ends a process that `wait` started, with the program that it runs."""
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def stop_all() -> None:
    """Ends every program that `wait` waits for."""
    for process in tuple(_running):
        stop(process)
