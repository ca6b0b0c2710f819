"""Pydantic validators of setting values: lists in one string, grants, patterns, networks."""

import ipaddress
import json
import os
import re
from typing import Annotated, Any

from pydantic import AfterValidator, BeforeValidator

from apexbridge.errors import ConfigError, SignatureError
from apexbridge.permissions.hook_protocol import parse_hooks
from apexbridge.permissions.rules import ToolPattern, split_patterns
from apexbridge.signatures import PublicKey
from apexbridge.skills.model import Origin


def _split_paths(value: object) -> object:
    """Split an environment variable or flag at the path separator."""
    return [part for part in value.split(os.pathsep) if part] if isinstance(value, str) else value


def _split_words(value: object) -> object:
    # Origin names contain no colon, so it separates them as in PATH.
    return re.findall(r"[^\s,:;]+", value) if isinstance(value, str) else value


def _split_list(value: object) -> object:
    # URLs and CIDR networks contain colons: not a separator here.
    return re.findall(r"[^\s,;]+", value) if isinstance(value, str) else value


def parse_json(value: object) -> object:
    """Parse a table given as one string as JSON."""
    return json.loads(value) if isinstance(value, str) else value


def language_tag(value: object) -> object:
    """Reduce a locale name or language tag (`zh_CN.UTF-8`, `zh-Hans`) to its language."""
    return value.lower()[:2] if isinstance(value, str) and value.lower() != "auto" else value


def _check_no_nul(paths: tuple[str, ...]) -> tuple[str, ...]:
    if any("\0" in path for path in paths):
        raise ValueError("a path contains a NUL character")
    return paths


def _check_pairs(form: str) -> AfterValidator:
    def check(written: tuple[str, ...]) -> tuple[str, ...]:
        for text in written:
            key, _, value = text.partition("=")
            if not (key and value):
                raise ValueError(f"'{text}' is not {form}")
        return written

    return AfterValidator(check)


_EMBEDDER_KINDS = frozenset({"default", "use", "hash", "http"})
"""Embedders without a parameter after a colon."""


def _check_embedder(written: str) -> str:
    kind, _, rest = written.partition(":")
    if (kind in _EMBEDDER_KINDS and not rest) or (kind in {"onnx", "fastembed"} and rest):
        return written
    every = "default, use, hash, http, onnx:FOLDER, fastembed:MODEL"
    raise ValueError(f"'{written}' is not one of {every}")


def _check_networks(written: tuple[str, ...]) -> tuple[str, ...]:
    for text in written:
        ipaddress.ip_network(text)
    return written


def _check_public_keys(written: tuple[str, ...]) -> tuple[str, ...]:
    for text in written:
        try:
            PublicKey.parse(text)
        except SignatureError:
            raise ValueError(f"'{text}' is not a public key of minisign") from None
    return written


def _split_tool_patterns(value: object) -> object:
    return split_patterns(value) if isinstance(value, str) else value


def _check_tool_patterns(written: tuple[str, ...]) -> tuple[str, ...]:
    for text in written:
        try:
            ToolPattern.parse(text)
        except ConfigError as error:
            raise ValueError(str(error)) from None
    return written


def _check_hooks(written: dict[str, Any]) -> dict[str, Any]:
    for event, declared in written.items():
        try:
            parse_hooks(event, declared)
        except ConfigError as error:
            raise ValueError(str(error)) from None
    return written


Paths = Annotated[tuple[str, ...], BeforeValidator(_split_paths), AfterValidator(_check_no_nul)]
HostGrants = Annotated[
    tuple[str, ...], BeforeValidator(_split_list), _check_pairs("of the form skill=host")
]
Aliases = Annotated[tuple[str, ...], BeforeValidator(_split_list), _check_pairs("NAME=MODEL")]
Precedence = Annotated[tuple[Origin, ...], BeforeValidator(_split_words)]
Embedder = Annotated[str, AfterValidator(_check_embedder)]
StringList = Annotated[tuple[str, ...], BeforeValidator(_split_list)]
Networks = Annotated[tuple[str, ...], BeforeValidator(_split_list), AfterValidator(_check_networks)]
PublicKeys = Annotated[
    tuple[str, ...], BeforeValidator(_split_list), AfterValidator(_check_public_keys)
]
ToolPatterns = Annotated[
    tuple[str, ...], BeforeValidator(_split_tool_patterns), AfterValidator(_check_tool_patterns)
]
Hooks = Annotated[dict[str, Any], BeforeValidator(parse_json), AfterValidator(_check_hooks)]


SECRET_PATHS = (
    "~/.ssh", "~/.gnupg", "~/.password-store", "~/.local/share/keyrings", "~/.netrc",
    "~/.aws", "~/.azure", "~/.config/gcloud", "~/.kube", "~/.docker/config.json",
    "~/.git-credentials", "~/.config/gh", "~/.npmrc", "~/.pypirc", "~/.pgpass",
    "~/.vault-token", "~/.codex/auth.json", "~/.claude/.credentials.json",
)  # fmt: skip
"""Where programs usually keep keys and passwords."""
