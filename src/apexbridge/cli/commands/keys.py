"""`keys`: create, list and revoke API keys."""

import time
from datetime import UTC, datetime

import typer

from apexbridge.api_keys import SCOPES, ApiKey, ApiKeyStore, Scope
from apexbridge.audit import AuditLog
from apexbridge.cli.output import Output, sanitize
from apexbridge.errors import ConfigError
from apexbridge.settings import Config

_DAY = 86_400
_DEFAULT_SCOPES: tuple[Scope, ...] = ("chat", "skills:read")


def open_key_store(loaded: Config) -> ApiKeyStore:
    """Key store of the data folder."""
    return ApiKeyStore(loaded.data / "keys.json")


def create(out: Output, *, name: str, scope: list[str] | None, expires_days: float | None) -> None:
    """Create a key and print its secret, which is stored as a hash only."""
    wanted = scope or []
    if unknown := set(wanted).difference(SCOPES):
        raise typer.BadParameter(f"unknown scope: {', '.join(unknown)}", param_hint="--scope")
    scopes: tuple[Scope, ...] = tuple(one for one in SCOPES if one in wanted)
    expires = None if expires_days is None else time.time() + expires_days * _DAY
    # The store keeps a hash only, so this is the last time that the secret is known.
    text, key = open_key_store(out.config).create(name, scopes or _DEFAULT_SCOPES, expires=expires)
    _record(out.config, "key_made", key)

    def render() -> None:
        out.line(out.text("key_made", name=key.name, id=key.id))
        print(text)  # even with --quiet: the secret cannot be shown again

    out.finish({**_to_json(key), "key": text}, render)


def ls(out: Output) -> None:
    """Print the keys without their secrets."""
    keys = open_key_store(out.config).all()
    if not keys:
        out.finish_line([], "keys_none")
        return
    heads = [out.text(h) for h in ("key_id", "name", "key_state", "key_expires", "key_scopes")]
    rows = [
        (key.id, key.name, out.text(_state(key)), _format_expiry(out, key), " ".join(key.scopes))
        for key in keys
    ]
    out.finish([_to_json(key) for key in keys], lambda: out.table(heads, rows))


def revoke(out: Output, *, key: str) -> None:
    """Revoke a key by id or name."""
    found = open_key_store(out.config).revoke(key)
    if found is None:
        raise ConfigError(code="key_unknown", name=sanitize(key))
    _record(out.config, "key_revoked", found)
    out.finish_line(_to_json(found), "key_revoked", name=found.name, id=found.id)


def _record(loaded: Config, what: str, key: ApiKey) -> None:
    facts = {"key": key.id, "name": key.name, "scopes": " ".join(key.scopes)}
    AuditLog(loaded.data / "audit.jsonl").record(what, **facts)


def _state(key: ApiKey) -> str:
    if key.revoked is not None:
        return "key_ended"
    return "key_good" if key.is_valid(time.time()) else "key_expired"


def _format_expiry(out: Output, key: ApiKey) -> str:
    if key.expires is None:
        return out.text("key_never")
    return datetime.fromtimestamp(key.expires, UTC).strftime("%Y-%m-%d %H:%M UTC")


def _to_json(key: ApiKey) -> dict[str, object]:
    return {**key.model_dump(exclude={"sha256"}), "state": _state(key).removeprefix("key_")}
