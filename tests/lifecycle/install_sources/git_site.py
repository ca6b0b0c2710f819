"""A real git repository, and a loopback HTTP server that serves it as code hosts do."""

import os
import shutil
import subprocess
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import TracebackType
from typing import Self
from urllib.parse import urlsplit

_AUTHOR = ("-c", "user.name=Test", "-c", "user.email=test@example.org")
_GIT = shutil.which("git") or "git"


def git(folder: Path, *words: str) -> str:
    """Run git in a folder, with no settings of the machine."""
    env = {
        "PATH": os.environ["PATH"],
        "HOME": str(folder),
        "GIT_CONFIG_NOSYSTEM": "1",
        "GIT_CONFIG_GLOBAL": "/dev/null",
    }
    done = subprocess.run(
        [_GIT, *_AUTHOR, *words],
        cwd=folder,
        env=env,
        check=True,
        capture_output=True,
        encoding="utf-8",
    )
    return done.stdout.strip()


@dataclass(frozen=True)
class Upstream:
    """A working tree, and the bare repository that it is pushed to."""

    tree: Path
    bare: Path

    @classmethod
    def create(cls, folder: Path, name: str = "repo") -> "Upstream":
        bare, tree = folder / "git" / "o" / f"{name}.git", folder / f"{name}-tree"
        bare.mkdir(parents=True)
        tree.mkdir()
        git(bare, "init", "-q", "--bare", "-b", "main")
        git(tree, "init", "-q", "-b", "main")
        git(tree, "remote", "add", "origin", str(bare))
        return cls(tree, bare)

    def commit(self, files: Mapping[str, bytes | None], *, branch: str = "main") -> str:
        """Write and remove files, push, and return the commit."""
        for name, data in files.items():
            path = self.tree / name
            path.parent.mkdir(parents=True, exist_ok=True)
            if data is None:
                path.unlink()
            else:
                path.write_bytes(data)
        git(self.tree, "add", "-A")
        git(self.tree, "commit", "-q", "-m", "change")
        git(self.tree, "push", "-q", "origin", f"HEAD:refs/heads/{branch}")
        return git(self.tree, "rev-parse", "HEAD")

    def tag(self, name: str) -> None:
        git(self.tree, "tag", "-a", name, "-m", name)
        git(self.tree, "push", "-q", "origin", f"refs/tags/{name}")


@dataclass
class GitSite:
    """Serves bare repositories below a root over smart HTTP, and archives of their commits."""

    root: Path
    refuses_git: bool = False
    """Answer every git request with a login page, status 200."""
    paths: list[str] = field(default_factory=list[str])

    def __post_init__(self) -> None:
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(self))
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,))

    @property
    def port(self) -> int:
        return self._server.server_address[1]

    def url(self, path: str = "", host: str = "127.0.0.1") -> str:
        return f"http://{host}:{self.port}{path}"

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

    def archive(self, repository: str, commit: str) -> bytes:
        words = [_GIT, "archive", "--format=tar.gz", f"--prefix=r-{commit}/", commit]
        return subprocess.run(
            words, cwd=self.root / f"{repository}.git", check=True, capture_output=True
        ).stdout


def _handler(site: GitSite) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self._serve(b"")

        def do_POST(self) -> None:
            self._serve(self.rfile.read(int(self.headers.get("Content-Length", 0))))

        def _serve(self, body: bytes) -> None:
            site.paths.append(self.path)
            path = urlsplit(self.path).path
            if site.refuses_git:
                self._answer("200 OK", {"Content-Type": "text/html"}, b"<html>Sign in</html>")
            elif "/archive/" in path:
                repository, _, name = path.strip("/").partition("/archive/")
                data = site.archive(repository, name.removesuffix(".tar.gz"))
                self._answer("200 OK", {"Content-Type": "application/x-gzip"}, data)
            else:
                self._backend(path, body)

        def _backend(self, path: str, body: bytes) -> None:
            env = {
                "PATH": os.environ["PATH"],
                "GIT_PROJECT_ROOT": str(site.root),
                "GIT_HTTP_EXPORT_ALL": "1",
                "PATH_INFO": path,
                "QUERY_STRING": urlsplit(self.path).query,
                "REQUEST_METHOD": self.command,
                "CONTENT_TYPE": self.headers.get("Content-Type", ""),
                "CONTENT_LENGTH": str(len(body)),
                "HTTP_CONTENT_ENCODING": self.headers.get("Content-Encoding", ""),
                "GIT_PROTOCOL": self.headers.get("Git-Protocol", ""),
            }
            run = subprocess.run(
                [_GIT, "http-backend"], env=env, input=body, check=False, capture_output=True
            )
            head, _, data = run.stdout.partition(b"\r\n\r\n")
            lines = (line.partition(": ") for line in head.decode().split("\r\n"))
            headers = {name: value for name, _, value in lines}
            self._answer(headers.pop("Status", "200 OK"), headers, data)

        def _answer(self, status: str, headers: Mapping[str, str], data: bytes) -> None:
            self.send_response(int(status.split(" ")[0]))
            for name, value in headers.items():
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002
            """Say nothing."""

    return Handler
