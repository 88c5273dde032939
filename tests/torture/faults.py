"""What a system does to a cache: no space, no descriptors, no rights, no directory, another clock, another version.

Each scenario takes a worker and an empty directory, raises Broken when a promise is broken, and says what was seen.
"""

from __future__ import annotations

import contextlib
import json
import os
import pathlib
import resource
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator

from worker import Broken, Worker, last_line

NOBODY = 65534
FORMAT_FROM_THE_FUTURE = 99


def _expect(holds: bool, what: str) -> None:
    if not holds:
        raise Broken(what)


def _sound_again(worker: Worker, directory: pathlib.Path, names: list[str]) -> None:
    report = worker.use(directory, names)
    _expect(not report["lost"], f"entries are lost: {report['lost']}")
    _expect(report["stored"] and report["clean"], f"the cache does not work again: {report}")


@contextlib.contextmanager
def _small_disk(directory: pathlib.Path) -> Iterator[bool]:
    """A file system of 2 MiB; yields False where mounting is not allowed."""
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=2m", "tmpfs", directory], capture_output=True).returncode == 0
    try:
        yield mounted
    finally:
        if mounted:
            subprocess.run(["umount", "-l", directory], check=True)


def _limit_file_size() -> None:
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (150_000, 150_000))


def full_disk(worker: Worker, directory: pathlib.Path) -> str:
    """Entries until nothing fits; what was there stays, and space makes it work again."""
    with _small_disk(directory) as mounted:
        cache = directory / "cache"
        names = worker.fill(cache, 4, "before")
        limit = None if mounted else _limit_file_size
        done = worker.run(["fill", cache, "60", "more"], allowed=(1,), preexec=limit)
        names += [line.split()[1] for line in done.stdout.splitlines()]
        report = worker.use(cache, names, preexec=limit)
        _expect(not report["lost"], f"a full disk lost {report['lost']}")
        if mounted:
            subprocess.run(["mount", "-o", "remount,size=64m", directory], check=True)
        _sound_again(worker, cache, names)
    return f"{'disk' if mounted else 'file size limit'} reached after {len(names)} entries: {last_line(done.stderr)}"


def few_descriptors(worker: Worker, directory: pathlib.Path) -> str:
    """Every small number of descriptors: it works or it says why."""
    names = worker.fill(directory / "cache", 4, "before")
    said = set()
    for limit in range(4, 24, 2):
        done = worker.run(
            ["use", directory / "cache"],
            "\n".join(names),
            preexec=lambda n=limit: resource.setrlimit(resource.RLIMIT_NOFILE, (n, n)),
            allowed=(0, 1, 127),  # 127: not even the program's libraries could be opened
        )
        said.update(line.split(": ", 1)[-1] for line in done.stderr.splitlines() if "open files" in line)
        _sound_again(worker, directory / "cache", names)
    _expect(bool(said), "no limit was low enough to be noticed")
    return sorted(said)[0]


def _as_nobody() -> None:
    os.setgroups([])
    os.setgid(NOBODY)
    os.setuid(NOBODY)


@contextlib.contextmanager
def _reachable(worker: Worker) -> Iterator[Worker]:
    """The worker where every user can run it."""
    with tempfile.TemporaryDirectory(prefix="rekindle-torture-") as folder:
        tests = pathlib.Path(folder) / "tests"
        tests.mkdir()
        shutil.copy(worker.program, tests)
        os.chmod(folder, 0o755)
        yield Worker(pathlib.Path(folder))


def read_only(worker: Worker, directory: pathlib.Path) -> str:
    """What belongs to root and others can read: entries are used, none is added, one message says so."""
    if os.geteuid() != 0:
        return "not tried: only root can become another user"
    names = worker.fill(directory / "cache", 2, "before")
    os.chmod(directory, 0o755)
    subprocess.run(["chmod", "-R", "go+rX", directory / "cache"], check=True)
    with _reachable(worker) as copy:
        done = copy.run(["use", directory / "cache"], "\n".join(names), preexec=_as_nobody)
    report = json.loads(done.stdout)
    _expect(report["found"] == len(names) and not report["stored"], f"used otherwise than expected: {report}")
    said = [line for line in done.stderr.splitlines() if line.startswith("rekindle: ")]
    _expect(len(said) == 1 and "read-only" in said[0], f"expected one line: {done.stderr}")
    _sound_again(worker, directory / "cache", names)
    return said[0]


def foreign_owner(worker: Worker, directory: pathlib.Path) -> str:
    """A directory of a third user."""
    if os.geteuid() != 0:
        return "not tried: only root can give a directory away"
    (directory / "cache").mkdir()
    os.chown(directory / "cache", 12345, 12345)
    os.chmod(directory, 0o755)
    with _reachable(worker) as copy:
        done = copy.run(["use", directory / "cache"], preexec=_as_nobody, allowed=(1,))
    _expect("belongs to user 12345" in done.stderr, done.stderr)
    return last_line(done.stderr)


def removed_directory(worker: Worker, directory: pathlib.Path) -> str:
    """The directory is removed five times under a process that reads and writes."""
    cache = directory / "cache"
    process = worker.churn(cache, "removed", mode="endure")
    for _ in range(5):
        time.sleep(0.3)
        shutil.rmtree(cache, ignore_errors=True)
    time.sleep(0.3)
    process.kill()
    names = worker.committed_by(process)
    report = worker.use(cache, names)
    _expect(report["stored"] and report["clean"], f"the cache does not work again: {report}")
    return f"{len(names)} stored meanwhile; it is made again"


def clock_set_back(worker: Worker, directory: pathlib.Path) -> str:
    """Ten years back, then ten years ahead."""
    if worker.clock is None:
        raise Broken("the shifted clock is not built")
    names = worker.fill(directory / "cache", 3, "before")
    for years in (-10, 10, -10):
        shift = {"LD_PRELOAD": str(worker.clock.resolve()), "REKINDLE_TEST_CLOCK": str(years * 365 * 86400)}
        report = worker.use(directory / "cache", names, environment=shift)
        _expect(not report["lost"] and report["stored"] and report["clean"], f"{years} years: {report}")
    _sound_again(worker, directory / "cache", names)
    return "nothing lost ten years back and ahead"


def other_version(worker: Worker, directory: pathlib.Path) -> str:
    """Entries of a format that is not ours are passed over, never misread, and the cache goes on."""
    names = worker.fill(directory / "cache", 4, "before")
    worker.run(["reversion", directory / "cache", str(FORMAT_FROM_THE_FUTURE)])
    done = worker.run(["use", directory / "cache"], "\n".join(names))
    _sound_again(worker, directory / "cache", ["afterwards"])
    warnings = [line for line in done.stderr.splitlines() if "warning" in line]
    _expect(len(warnings) <= 1, f"more than one warning: {warnings}")
    return last_line("\n".join(warnings))


SCENARIOS: dict[str, Callable[[Worker, pathlib.Path], str]] = {
    "full disk": full_disk,
    "few file descriptors": few_descriptors,
    "read-only directory": read_only,
    "foreign owner": foreign_owner,
    "directory removed": removed_directory,
    "clock set back": clock_set_back,
    "format from the future": other_version,
}
