"""Machines that share a web server: what one has exported runs on another, and a server that fails is no error."""

from __future__ import annotations

import contextlib
import http.server
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import ClassVar

import pytest
import rekindle
import torch
from rekindle.lookup import store
from seeded import seeded
from torch import nn


class Keeping(http.server.BaseHTTPRequestHandler):
    """Answers GET with what was PUT, or each request with `status`."""

    kept: ClassVar[dict[str, bytes]] = {}
    status: ClassVar[int] = 0

    def do_GET(self) -> None:
        found = self.kept.get(self.path)
        self._answer(self.status or (404 if found is None else 200), found or b"")

    def do_PUT(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        if not self.status:
            self.kept[self.path] = body
        self._answer(self.status or 201)

    def _answer(self, status: int, body: bytes = b"") -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Says nothing."""


@contextlib.contextmanager
def serving() -> Iterator[str]:
    Keeping.kept, Keeping.status = {}, 0
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Keeping)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}/team"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(8, 16), nn.GELU(), nn.Linear(16, 4))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layers(x).square().sum()


def trained_on(machine: Path, remote: str) -> tuple[str, list[torch.Tensor]]:
    """Returns where the graph came from, and the gradients, on a machine with a cache of its own."""
    torch.manual_seed(0)
    model = rekindle.Module(Net(), rekindle.Options(cache_dir=str(machine), remote=remote))
    model(torch.randn(3, 8, generator=seeded(0))).backward()
    store.flush()
    return rekindle.status(model).source, [p.grad for p in model.parameters() if p.grad is not None]


@pytest.fixture(autouse=True)
def _no_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("no_proxy", "127.0.0.1")


def test_what_one_machine_exports_another_one_finds_on_the_server(tmp_path: Path) -> None:
    with serving() as remote:
        first, gradients = trained_on(tmp_path / "a", remote)
        second, same = trained_on(tmp_path / "b", f"{remote} ro")
        third, _ = trained_on(tmp_path / "b", "")
    assert (first, second, third) == ("export", "remote", "local")
    assert len(gradients) == 4
    assert all(torch.equal(a, b) for a, b in zip(gradients, same, strict=True))


def test_bytes_that_rot_on_the_server_are_exported_again(tmp_path: Path) -> None:
    with serving() as remote:
        _, gradients = trained_on(tmp_path / "a", remote)
        for path, body in Keeping.kept.items():
            if "/cas/" in path:
                middle = len(body) // 2
                Keeping.kept[path] = body[:middle] + bytes([body[middle] ^ 1]) + body[middle + 1 :]
        source, again = trained_on(tmp_path / "b", remote)
        healed, _ = trained_on(tmp_path / "c", remote)
    assert (source, healed) == ("export", "remote")
    assert all(torch.equal(a, b) for a, b in zip(gradients, again, strict=True))


def test_a_server_that_fails_is_one_warning(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    with serving() as remote:
        Keeping.status = 503
        source, gradients = trained_on(tmp_path / "a", remote)
    assert source == "export"
    assert len(gradients) == 4
    said = capfd.readouterr().err
    assert said.count("failed: ") == 1
    assert "HTTP status 503; training goes on without it" in said


def test_a_place_that_is_none_is_refused_at_once() -> None:
    with pytest.raises(rekindle.errors.OptionError, match=r"write them to ~/\.netrc") as raised:
        rekindle.Options(remote="http://me:s3cr3t@cache.example/rekindle")
    assert "s3cr3t" not in str(raised.value)
    with pytest.raises(rekindle.errors.OptionError, match=r"known: bazel\+http, bazel\+https, file, http, https, redis"):
        rekindle.Options(remote="ftp://cache.example/rekindle")
