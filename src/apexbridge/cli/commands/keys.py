"""`keys`: create, list and revoke API keys."""

import time
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Annotated

import typer

from apexbridge.api_keys import SCOPES, ApiKey, ApiKeyStore, Scope
from apexbridge.audit import AuditLog
from apexbridge.cli.options import Json, Quiet
from apexbridge.cli.output import Output, command_output, sanitize
from apexbridge.errors import ConfigError
from apexbridge.settings import Config

_DAY = 86_400
_DEFAULT_SCOPES: tuple[Scope, ...] = ("chat", "skills:read")


app = typer.Typer()
keys_app = typer.Typer(
    help="Create, list and revoke API keys of the server.",
    no_args_is_help=True,
    rich_markup_mode=None,
)
app.add_typer(keys_app, name="keys")


@keys_app.command()
def create(
    context: typer.Context,
    name: Annotated[str, typer.Argument(help="A label for the key.")],
    scope: Annotated[
        list[str] | None,
        typer.Option(
            help="Permission: chat, skills:read, skills:write, exec or admin; repeatable "
            "[chat and skills:read]."
        ),
    ] = None,
    expires_days: Annotated[
        float | None, typer.Option(min=0, max=36_500, help="Days until it expires [never].")
    ] = None,
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Create an API key; it is shown only once."""
    with command_output(context, json=json, quiet=quiet) as out:
        _create_key(out, name, scope or (), expires_days)


# The name of this command until 0.1; kept for scripts that use it.
keys_app.command("make", hidden=True, deprecated=True)(create)


@keys_app.command()
def ls(context: typer.Context, json: Json = False, quiet: Quiet = False) -> None:
    """List the API keys with name, state and scopes, without the secrets."""
    with command_output(context, json=json, quiet=quiet) as out:
        _list_keys(out)


@keys_app.command()
def revoke(
    context: typer.Context,
    key: Annotated[str, typer.Argument(metavar="ID", help="The key's id, or its name.")],
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Revoke an API key; a running server rejects it from the next request on."""
    with command_output(context, json=json, quiet=quiet) as out:
        _revoke_key(out, key)


def open_key_store(loaded: Config) -> ApiKeyStore:
    """Key store of the data folder."""
    return ApiKeyStore(loaded.data / "keys.json")


def _create_key(out: Output, name: str, wanted: Sequence[str], days: float | None) -> None:
    """Create a key and print its secret, which is stored as a hash only."""
    if unknown := set(wanted).difference(SCOPES):
        raise typer.BadParameter(f"unknown scope: {', '.join(unknown)}", param_hint="--scope")
    scopes: tuple[Scope, ...] = tuple(scope for scope in SCOPES if wanted.count(scope))
    expires = None if days is None else time.time() + days * _DAY
    # The store keeps a hash only, so this is the last time that the secret is known.
    text, key = open_key_store(out.config).create(name, scopes or _DEFAULT_SCOPES, expires=expires)
    _record(out.config, "key_made", key)

    def render() -> None:
        out.line(out.text("key_made", name=key.name, id=key.id))
        print(text)  # even with --quiet: the secret cannot be shown again

    out.finish({**_to_json(key), "key": text}, render)


def _list_keys(out: Output) -> None:
    """Print the keys without their secrets."""
    keys = open_key_store(out.config).all()
    if not keys:
        out.finish([], lambda: out.line(out.text("keys_none")))
        return
    heads = [out.text(h) for h in ("key_id", "name", "key_state", "key_expires", "key_scopes")]
    rows = [
        (key.id, key.name, out.text(_state(key)), _format_expiry(out, key), " ".join(key.scopes))
        for key in keys
    ]
    out.finish([_to_json(key) for key in keys], lambda: out.table(heads, rows))


def _revoke_key(out: Output, wanted: str) -> None:
    """Revoke a key by id or name."""
    key = open_key_store(out.config).revoke(wanted)
    if key is None:
        raise ConfigError(code="key_unknown", name=sanitize(wanted))
    _record(out.config, "key_revoked", key)
    out.finish(_to_json(key), lambda: out.line(out.text("key_revoked", name=key.name, id=key.id)))


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
