"""Package indexes that the operator configured for uv, pip and npm; credentials stay in here.

The order is the one of the tools: uv's variables, uv's file, pip's variables, pip's files, and the
public default. Only these hosts are reached by a build, whatever a skill says.
"""

import configparser
import re
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal
from urllib.parse import urlsplit

Ecosystem = Literal["python", "node"]

VARIABLES = (
    "UV_DEFAULT_INDEX", "UV_INDEX_URL", "UV_EXTRA_INDEX_URL", "UV_INDEX", "UV_CONFIG_FILE",
    "PIP_INDEX_URL", "PIP_EXTRA_INDEX_URL", "PIP_CONFIG_FILE", "NPM_CONFIG_REGISTRY",
    "npm_config_registry", "NPM_CONFIG_USERCONFIG", "SSL_CERT_FILE", "NODE_EXTRA_CA_CERTS",
    "XDG_CONFIG_HOME",
)  # fmt: skip
"""Environment variables that configure package indexes, beside the tools' files."""

_PYPI = "https://pypi.org/simple"
_NPM = "https://registry.npmjs.org/"
_FILE_HOSTS = {"pypi.org": "files.pythonhosted.org", "test.pypi.org": "test-files.pythonhosted.org"}
"""Hosts that serve the files of an index, where it is not the same host."""
_NPM_LINE = re.compile(
    r"(@[\w.-]+:)?registry *=|//[^=\s]+:(_authToken|_auth|_password|username|always-auth) *="
)
_CA_FILE = "/etc/ssl/certs/ca-certificates.crt"
_USER_INFO = re.compile(r"(?<=://)[^/\s@]+@")


@dataclass(frozen=True, slots=True, kw_only=True)
class PackageIndex:
    """The indexes of one ecosystem, with credentials (never shown)."""

    urls: tuple[str, ...] = field(repr=False)
    """The default index first."""
    file_hosts: tuple[str, ...] = ()
    npm_lines: tuple[str, ...] = field(default=(), repr=False)
    """Lines of `.npmrc` that name registries and their credentials."""
    ca_file: str = ""

    @property
    def hosts(self) -> tuple[str, ...]:
        """Hosts with ports that a build may reach."""
        own = [host for host in map(_host, self.urls) if host]
        near = [_FILE_HOSTS[host] for host in own if host in _FILE_HOSTS]
        return tuple(dict.fromkeys((*own, *near, *self.file_hosts)))

    @property
    def has_credentials(self) -> bool:
        """True if a build could read credentials of the index."""
        return any("@" in urlsplit(url).netloc for url in self.urls) or any(
            line.startswith("//") for line in self.npm_lines
        )

    @property
    def shown(self) -> str:
        """The default index without credentials."""
        return redact(self.urls[0])


def redact(text: str) -> str:
    """Remove user information from URLs in a text.

    >>> redact("https://me:secret@pypi.example.org/simple is down")
    'https://pypi.example.org/simple is down'
    """
    return _USER_INFO.sub("", text)


def find_index(
    ecosystem: Ecosystem,
    variables: Mapping[str, str],
    home: Path,
    *,
    chosen: str = "",
    file_hosts: Sequence[str] = (),
) -> PackageIndex:
    """Find the configured index of an ecosystem; `chosen` is a setting of ours. Blocks."""
    if ecosystem == "node":
        return _npm_index(variables, home, chosen, tuple(file_hosts))
    default, extra = _python_urls(variables, home)
    urls = (chosen or default, *(() if chosen else extra))
    ca_file = variables.get("SSL_CERT_FILE") or (_CA_FILE if Path(_CA_FILE).is_file() else "")
    kept = tuple(url for url in urls if urlsplit(url).scheme in {"http", "https"})
    return PackageIndex(urls=kept or (_PYPI,), file_hosts=tuple(file_hosts), ca_file=ca_file)


def _python_urls(variables: Mapping[str, str], home: Path) -> tuple[str, list[str]]:
    default, extra = "", list[str]()
    for here, more in _python_layers(variables, home):
        default = default or here
        extra += more
    return default or _PYPI, list(dict.fromkeys(extra))


def _python_layers(variables: Mapping[str, str], home: Path) -> Iterator[tuple[str, list[str]]]:
    named = [_unnamed(word) for word in variables.get("UV_INDEX", "").split()]
    uv_default = variables.get("UV_DEFAULT_INDEX") or variables.get("UV_INDEX_URL", "")
    yield _unnamed(uv_default), [*named, *variables.get("UV_EXTRA_INDEX_URL", "").split()]
    yield from map(_uv_file, _config_files(variables, home, "UV_CONFIG_FILE", "uv", "uv.toml"))
    pip_extra = variables.get("PIP_EXTRA_INDEX_URL", "").split()
    yield variables.get("PIP_INDEX_URL", ""), pip_extra
    files = [*_config_files(variables, home, "PIP_CONFIG_FILE", "pip", "pip.conf")]
    yield from map(_pip_file, (*files, home / ".pip/pip.conf", Path("/etc/pip.conf")))


def _unnamed(text: str) -> str:
    """Strip the name of `NAME=URL`, as uv accepts it."""
    name, sign, url = text.partition("=")
    return url if sign and "/" not in name else text


def _config_files(
    variables: Mapping[str, str], home: Path, own: str, folder: str, name: str
) -> Iterator[Path]:
    if variables.get(own):
        yield Path(variables[own])
        return
    base = variables.get("XDG_CONFIG_HOME")
    yield (Path(base) if base else home / ".config") / folder / name
    yield Path("/etc") / folder / name


def _uv_file(path: Path) -> tuple[str, list[str]]:
    try:
        values = tomllib.loads(path.read_text("utf-8"))
    except (OSError, ValueError):
        return "", []
    default, extra = (
        str(values.get("index-url", "")),
        list(map(str, _list(values, "extra-index-url"))),
    )
    for table in _list(values, "index"):
        if isinstance(table, dict):
            url = str(table.get("url", ""))  # pyright: ignore[reportUnknownMemberType, reportUnknownArgumentType]
            is_default = table.get("default") is True  # pyright: ignore[reportUnknownMemberType]
            default, extra = (url, extra) if is_default else (default, [*extra, url])
    return default, extra


def _list(values: Mapping[str, object], key: str) -> list[object]:
    value = values.get(key)
    return list(value) if isinstance(value, list) else []  # pyright: ignore[reportUnknownArgumentType]


def _pip_file(path: Path) -> tuple[str, list[str]]:
    parser = configparser.RawConfigParser()
    try:
        parser.read(path, "utf-8")
    except (configparser.Error, UnicodeDecodeError):
        return "", []
    options = {key: parser.get(section, key)
               for section in ("global", "install") if parser.has_section(section)
               for key in parser.options(section)}  # fmt: skip
    return options.get("index-url", ""), options.get("extra-index-url", "").split()


def _npm_index(
    variables: Mapping[str, str], home: Path, chosen: str, file_hosts: tuple[str, ...]
) -> PackageIndex:
    path = Path(variables.get("NPM_CONFIG_USERCONFIG") or home / ".npmrc")
    try:
        lines = [line.strip() for line in path.read_text("utf-8").splitlines()]
    except (OSError, UnicodeDecodeError):
        lines = []
    kept = [line for line in lines if _NPM_LINE.match(line) and "${" not in line]
    own = chosen or variables.get("npm_config_registry") or variables.get("NPM_CONFIG_REGISTRY")
    written = (line.partition("=")[2].strip() for line in kept if line.startswith("registry"))
    default = own or next(written, "") or _NPM
    if own:
        kept = [line for line in kept if not line.startswith("registry")] + [f"registry={own}"]
    scoped = (line.partition("=")[2].strip() for line in kept if line.startswith("@"))
    ca_file = variables.get("NODE_EXTRA_CA_CERTS") or variables.get("SSL_CERT_FILE", "")
    return PackageIndex(
        urls=(default, *scoped), file_hosts=file_hosts, npm_lines=tuple(kept), ca_file=ca_file
    )


def _host(url: str) -> str:
    try:
        parts = urlsplit(url)
        host, port = parts.hostname or "", parts.port
    except ValueError:
        return ""
    return f"{host}:{port}" if host and port else host
