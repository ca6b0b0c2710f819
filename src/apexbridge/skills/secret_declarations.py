"""Secrets that a skill declares: names of environment variables, and hosts they are sent to.

```yaml
secrets: [OPENAI_API_KEY=api.openai.com]
secrets:
  OPENAI_API_KEY:
    hosts: [api.openai.com]
    description: To transcribe
    required: true
    in: [header]
    prefix: sk-
metadata:
  secrets: OPENAI_API_KEY=api.openai.com, SEARCH_KEY=search.example.org
```
"""

import re
from collections.abc import Iterator, Sequence
from typing import Annotated, NamedTuple, get_args

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

from apexbridge.sandbox.host_rule import HostRule
from apexbridge.sandbox.placeholders import Place

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,63}")
_PREFIX = re.compile(r"[A-Za-z0-9_.-]{0,16}")
_RESERVED = frozenset({
    "PATH", "HOME", "LANG", "SHELL", "USER", "PWD", "TMPDIR", "TERM", "IFS", "ENV", "BASH_ENV",
    "CLAUDE_SKILL_DIR", "NODE_OPTIONS", "NODE_EXTRA_CA_CERTS", "NODE_USE_ENV_PROXY",
    "PYTHONPATH", "PYTHONHOME", "PYTHONSTARTUP", "PYTHONUNBUFFERED", "PYTHONDONTWRITEBYTECODE",
    "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY", "SSL_CERT_FILE", "SSL_CERT_DIR",
    "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "GIT_SSL_CAINFO", "PIP_CERT",
})  # fmt: skip
"""Variables that decide how a program runs, not what it knows."""
_MAX_DECLARED = 32


def is_secret_name(name: str) -> bool:
    """Return whether a text can name a secret."""
    is_reserved = name.upper() in _RESERVED or name.upper().startswith(("LD_", "DYLD_"))
    return _NAME.fullmatch(name) is not None and not is_reserved


def _as_words(value: object) -> object:
    return value.replace(",", " ").split() if isinstance(value, str) else value or ()


_Words = Annotated[tuple[str, ...], BeforeValidator(_as_words)]


class SecretDeclaration(BaseModel):
    """A secret that a skill asks for."""

    model_config = ConfigDict(frozen=True, extra="ignore", populate_by_name=True)

    name: str
    hosts: _Words = ()
    description: str = ""
    required: bool = True
    places: _Words = Field(default=("header",), alias="in")
    """Parts of a request in which the value may be sent."""
    prefix: str = ""
    """Beginning of the placeholder, for clients that check the shape of a key."""


def _as_declarations(value: object) -> object:
    if isinstance(value, str):
        value = [word for word in re.split(r"[,\n]", value) if word.strip()]
    if isinstance(value, dict):
        return [_named(str(name), fields) for name, fields in value.items()]  # pyright: ignore[reportUnknownVariableType, reportUnknownArgumentType]
    if isinstance(value, list | tuple):
        return [_entry(one) for one in value]  # pyright: ignore[reportUnknownVariableType, reportUnknownArgumentType]
    return () if value is None else value


def _entry(value: object) -> object:
    if not isinstance(value, str):
        return value
    name, _, hosts = value.partition("=")
    return {"name": name.strip(), "hosts": hosts.split()}


def _named(name: str, fields: object) -> object:
    if isinstance(fields, dict):
        return {**fields, "name": name}  # pyright: ignore[reportUnknownVariableType]
    return {"name": name, "hosts": fields or ()}


SecretDeclarations = Annotated[
    tuple[SecretDeclaration, ...],
    BeforeValidator(_as_declarations),
    Field(max_length=_MAX_DECLARED),
]


class InvalidSecret(NamedTuple):
    """A part of a declaration that is left out: the problem's code, and what it is about."""

    code: str
    name: str
    detail: str


def check_declarations(
    declared: Sequence[SecretDeclaration],
) -> tuple[tuple[SecretDeclaration, ...], tuple[InvalidSecret, ...]]:
    """Keep what is valid of each declaration, and report the rest."""
    valid, invalid = dict[str, SecretDeclaration](), list[InvalidSecret]()
    for one in declared:
        if not is_secret_name(one.name) or one.name in valid:
            invalid.append(InvalidSecret("secret_name_invalid", one.name[:80], ""))
            continue
        found = list(_invalid_parts(one))
        invalid += found
        wrong = {part.detail for part in found}
        valid[one.name] = one.model_copy(
            update={
                "hosts": tuple(host for host in one.hosts if host[:80] not in wrong),
                "places": tuple(p for p in one.places if p[:80] not in wrong) or ("header",),
                "prefix": "" if one.prefix[:80] in wrong else one.prefix,
            }
        )
    return tuple(valid.values()), tuple(invalid)


def _invalid_parts(declared: SecretDeclaration) -> Iterator[InvalidSecret]:
    for host in declared.hosts:
        try:
            HostRule.parse(host, allows_wildcard=False)
        except ValueError:
            yield InvalidSecret("secret_host_invalid", declared.name, host[:80])
    for place in declared.places:
        if place not in get_args(Place):
            yield InvalidSecret("secret_field_invalid", declared.name, place[:80])
    if not _PREFIX.fullmatch(declared.prefix):
        yield InvalidSecret("secret_field_invalid", declared.name, declared.prefix[:80])
