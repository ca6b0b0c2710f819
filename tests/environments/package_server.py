"""A package index on the loopback interface: wheels, source distributions and npm packages."""

import base64
import hashlib
import io
import json
import tarfile
import threading
import zipfile
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import unquote

NOTHING: Mapping[str, str] = {}


def wheel(
    name: str,
    version: str = "1.0",
    files: Mapping[str, str] = NOTHING,
    *,
    requires: tuple[str, ...] = (),
    extras: tuple[str, ...] = (),
    entry_points: str = "",
) -> bytes:
    """Make a wheel; names are taken as they are, also unsafe ones."""
    info = f"{name.replace('-', '_')}-{version}.dist-info"
    lines = [f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}"]
    lines += [f"Requires-Dist: {one}" for one in requires]
    lines += [f"Provides-Extra: {one}" for one in extras]
    members = {
        **files,
        f"{info}/METADATA": "\n".join(lines) + "\n",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        **({f"{info}/entry_points.txt": entry_points} if entry_points else {}),
    }
    record = "".join(f"{path},{_record_hash(text)},{len(text)}\n" for path, text in members.items())
    members[f"{info}/RECORD"] = f"{record}{info}/RECORD,,\n"
    data = io.BytesIO()
    with zipfile.ZipFile(data, "w") as archive:
        for path, text in members.items():
            archive.writestr(zipfile.ZipInfo(path), text)
    return data.getvalue()


def _record_hash(text: str) -> str:
    digest = hashlib.sha256(text.encode()).digest()
    return "sha256=" + base64.urlsafe_b64encode(digest).rstrip(b"=").decode()


BACKEND = """
import base64, hashlib, io, json, os, zipfile
NAME = {name!r}

def attack(place):
    results = {{}}
{code}
    return results

def build_wheel(wheel_directory, config_settings=None, metadata_directory=None):
    results = attack(wheel_directory)
    info = NAME.replace("-", "_") + "-1.0.dist-info"
    members = {{
        NAME.replace("-", "_") + ".py": "RESULTS = " + repr(json.dumps(results)),
        info + "/METADATA": f"Metadata-Version: 2.1\\nName: {{NAME}}\\nVersion: 1.0\\n",
        info + "/WHEEL": "Wheel-Version: 1.0\\nRoot-Is-Purelib: true\\nTag: py3-none-any\\n",
    }}
    members[info + "/RECORD"] = "".join(path + ",,\\n" for path in members)
    file = NAME.replace("-", "_") + "-1.0-py3-none-any.whl"
    with zipfile.ZipFile(os.path.join(wheel_directory, file), "w") as archive:
        for path, text in members.items():
            archive.writestr(path, text)
    return file
"""


def source_distribution(name: str, code: str, *, is_dynamic: bool = False) -> bytes:
    """Make a source distribution whose build runs code; `results` of it are in the built module.

    With `is_dynamic` its metadata is not written down: a resolver has to build it.
    """
    facts = 'version = "1.0"' if not is_dynamic else 'dynamic = ["version", "dependencies"]'
    indented = "\n".join(f"    {line}" for line in code.strip().splitlines())
    files = {
        "pyproject.toml": '[build-system]\nrequires = []\nbuild-backend = "backend"\n'
        f'backend-path = ["."]\n[project]\nname = "{name}"\n{facts}\n',
        "backend.py": BACKEND.format(name=name, code=indented),
        "PKG-INFO": f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n",
    }
    return _tarball({f"{name}-1.0/{path}": text for path, text in files.items()})


def npm_package(manifest: Mapping[str, object], files: Mapping[str, str] = NOTHING) -> bytes:
    """Make the tarball of an npm package."""
    return _tarball(
        {
            "package/package.json": json.dumps(manifest),
            **{f"package/{path}": text for path, text in files.items()},
        }
    )


def _tarball(files: Mapping[str, str]) -> bytes:
    data = io.BytesIO()
    with tarfile.open(fileobj=data, mode="w:gz") as archive:
        for path, text in files.items():
            member = tarfile.TarInfo(path)
            member.size = len(text.encode())
            archive.addfile(member, io.BytesIO(text.encode()))
    return data.getvalue()


@dataclass
class PackageServer:
    """Files by distribution, and what was asked for."""

    port: int = 0
    files: dict[str, dict[str, bytes]] = field(default_factory=dict[str, dict[str, bytes]])
    npm: dict[str, tuple[dict[str, object], bytes]] = field(
        default_factory=dict[str, tuple[dict[str, object], bytes]]
    )
    requests: list[str] = field(default_factory=list[str])
    hosts: list[str] = field(default_factory=list[str])
    credentials: list[str] = field(default_factory=list[str])
    password: str = ""
    has_integrity: bool = True
    """False for a registry that gives no hashes of npm packages."""

    @property
    def index(self) -> str:
        return f"http://127.0.0.1:{self.port}/simple"

    @property
    def registry(self) -> str:
        return f"http://127.0.0.1:{self.port}/npm/"

    def add_wheel(
        self,
        name: str,
        version: str = "1.0",
        files: Mapping[str, str] = NOTHING,
        *,
        requires: tuple[str, ...] = (),
        extras: tuple[str, ...] = (),
        entry_points: str = "",
    ) -> None:
        data = wheel(
            name, version, files, requires=requires, extras=extras, entry_points=entry_points
        )
        file = f"{name.replace('-', '_')}-{version}-py3-none-any.whl"
        self.files.setdefault(name, {})[file] = data

    def add_source(self, name: str, code: str, *, is_dynamic: bool = False) -> None:
        data = source_distribution(name, code, is_dynamic=is_dynamic)
        self.files.setdefault(name, {})[f"{name}-1.0.tar.gz"] = data

    def add_npm(self, name: str, files: Mapping[str, str] = NOTHING, **manifest: object) -> None:
        described = {"name": name, "version": "1.0.0", **manifest}
        self.npm[name] = (described, npm_package(described, files))

    def answer(self, path: str, authorization: str) -> tuple[int, str, bytes]:
        self.requests.append(path)
        self.credentials.append(authorization)
        if self.password and self.password not in authorization:
            return 401, "text/plain", b"credentials, please"
        parts = path.strip("/").split("/")
        if parts[0] == "simple" and len(parts) == 2 and parts[1] in self.files:
            return 200, "text/html", self._links(parts[1])
        if parts[0] == "files" and len(parts) == 3:
            data = self.files.get(parts[1], {}).get(parts[2])
            if data is not None:
                return 200, "application/octet-stream", data
        if parts[0] == "npm":
            return self._npm("/".join(parts[1:]))
        return 404, "text/plain", b"nothing here"

    def _links(self, name: str) -> bytes:
        links = (
            f'<a href="/files/{name}/{file}#sha256={hashlib.sha256(data).hexdigest()}">{file}</a>'
            for file, data in self.files[name].items()
        )
        return f"<!DOCTYPE html><html><body>{'<br>'.join(links)}</body></html>".encode()

    def _npm(self, path: str) -> tuple[int, str, bytes]:
        name, _, file = unquote(path).partition("/-/")
        if name not in self.npm:
            return 404, "application/json", b'{"error": "not found"}'
        manifest, data = self.npm[name]
        if file:
            return 200, "application/octet-stream", data
        integrity = "sha512-" + base64.b64encode(hashlib.sha512(data).digest()).decode()
        hashes = {"integrity": integrity} if self.has_integrity else {}
        dist = {"tarball": f"{self.registry}{name}/-/package-1.0.0.tgz", **hashes}
        described = {
            "name": name,
            "dist-tags": {"latest": "1.0.0"},
            "versions": {"1.0.0": {**manifest, "dist": dist}},
        }
        return 200, "application/json", json.dumps(described).encode()


@contextmanager
def package_server() -> Generator[PackageServer]:
    """Serve while the block runs."""
    state = PackageServer()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:  # the name that http.server expects
            state.hosts.append(self.headers.get("Host", ""))
            authorization = self.headers.get("Authorization", "")
            if authorization.startswith("Basic "):
                authorization = base64.b64decode(authorization[6:]).decode()
            status, kind, data = state.answer(self.path, authorization)
            self.send_response(status)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(data)))
            if status == 401:
                self.send_header("WWW-Authenticate", 'Basic realm="packages"')
            self.end_headers()
            self.wfile.write(data)

        do_HEAD = do_GET  # noqa: N815

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    state.port = server.server_address[1]
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    try:
        yield state
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
