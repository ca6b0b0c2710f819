"""`secrets`: give values once, and grant them to skills for hosts."""

import getpass
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from apexbridge.audit import AuditLog
from apexbridge.cli.output import ExitCode, Output, sanitize
from apexbridge.cli.runtime_call import with_runtime
from apexbridge.errors import ConfigError
from apexbridge.runtime import Runtime
from apexbridge.runtime.secret_preparation import open_secret_store
from apexbridge.sandbox.host_rule import HostRule
from apexbridge.sandbox.placeholders import MAX_VALUE
from apexbridge.secrets.run_secrets import current_sha256, missing_secrets
from apexbridge.secrets.store import SecretGrant, SecretState, check_name, check_value
from apexbridge.skills.model import Skill
from apexbridge.skills.secret_declarations import SecretDeclaration

_MAX_READ = 4 * MAX_VALUE


def set_secret(out: Output, *, name: str, file: Path | None, rest: list[str] | None) -> None:
    """Store a value. One that is an argument is refused, and not repeated in the message."""
    name, equals, _ = name.partition("=")  # `NAME=VALUE` is a value too
    if rest or equals:
        raise ConfigError(code="secret_in_argument", name=name)
    check_name(name)
    value = _read_value(out, name, file)
    check_value(name, value)
    _audit(out, "secret_set", secret=name)
    open_secret_store(out.config).set(name, value)
    out.finish_line({"name": name}, "secret_set", name=name)


def list_secrets(out: Output) -> None:
    """Print names, times and grants."""
    state = open_secret_store(out.config).read()
    granted = {grant.secret for grant in state.grants}
    names = sorted({*state.values, *granted})
    if not names:
        out.finish_line({"secrets": []}, "secrets_none")
        return
    heads = [out.text(key) for key in ("secret_name", "secret_state", "secret_grants")]
    rows = [
        (
            name,
            out.text("secret_has_value" if name in state.values else "secret_no_value"),
            "; ".join(f"{g.skill} → {', '.join(g.hosts)}" for g in _grants(state, name)) or "-",
        )
        for name in names
    ]
    data = [
        {
            "name": name,
            "is_set": name in state.values,
            "grants": [grant.model_dump(mode="json") for grant in _grants(state, name)],
        }
        for name in names
    ]
    out.finish({"secrets": data}, lambda: out.table(heads, rows))


def _grants(state: SecretState, name: str) -> list[SecretGrant]:
    return [grant for grant in state.grants if grant.secret == name]


def remove_secret(out: Output, *, name: str) -> None:
    """Remove a value and its grants."""
    store = open_secret_store(out.config)
    state = store.read()
    if name not in state.values and not _grants(state, name):
        raise ConfigError(code="secret_unknown", name=name)
    _audit(out, "secret_removed", secret=name)
    store.remove(name)
    out.finish_line({"name": name}, "secret_removed", name=name)


def grant_secrets(
    out: Output, *, skill: str, secret: list[str] | None, host: list[str] | None, yes: bool
) -> None:
    """Show what is granted, ask for consent and missing values, and record it."""

    async def find(runtime: Runtime) -> Skill:
        return runtime.catalog.get(skill)

    found = with_runtime(out, find)
    chosen = _chosen(found, secret or [])
    sha256 = current_sha256(found)
    if not sha256:
        raise ConfigError(code="secret_skill_unhashed", name=found.name)
    grants = tuple(_create_grant(found, sha256, declared, host or []) for declared in chosen)
    store = open_secret_store(out.config)
    _print_plan(out, found, chosen, grants)
    # With --quiet the hosts are not printed, so consent would be uninformed.
    if not yes and (out.is_quiet or not out.confirm("secret_ask", name=found.name)):
        out.finish_line({"granted": []}, "secret_unchanged", ExitCode.DENIED)
        return
    missing = {declared.name for declared in missing_secrets(found, store.read())}
    values = {d.name: _read_value(out, d.name, None) for d in chosen if d.name in missing}
    for name, value in values.items():
        check_value(name, value)
    for grant in grants:
        hosts = ", ".join(grant.hosts)
        facts = {"skill": grant.skill, "sha256": grant.sha256, "hosts": hosts}
        _audit(out, "secret_granted", secret=grant.secret, **facts)
    for name, value in values.items():
        store.set(name, value)
    store.grant(grants)
    data = {"granted": [grant.model_dump(mode="json") for grant in grants]}
    out.finish_line(data, "secret_granted", name=found.name, count=len(grants))


def _chosen(skill: Skill, names: Sequence[str]) -> tuple[SecretDeclaration, ...]:
    declared = {one.name: one for one in skill.manifest.secrets}
    for name in names:
        if name not in declared:
            raise ConfigError(code="secret_not_declared", secret=name, name=skill.name)
    if not declared:
        raise ConfigError(code="secrets_none_declared", name=skill.name)
    return tuple(one for one in declared.values() if not names or one.name in names)


def _create_grant(
    skill: Skill, sha256: str, declared: SecretDeclaration, hosts: Sequence[str]
) -> SecretGrant:
    return SecretGrant(
        secret=declared.name,
        skill=skill.name,
        sha256=sha256,
        hosts=tuple(_parse_hosts(declared, hosts or declared.hosts)),
        places=declared.places,
        at=time.time(),
    )


def _parse_hosts(declared: SecretDeclaration, hosts: Sequence[str]) -> Iterator[str]:
    if not hosts:
        raise ConfigError(code="secret_without_host", secret=declared.name)
    for host in hosts:
        try:
            yield str(HostRule.parse(host, allows_wildcard=False))
        except ValueError:
            raise ConfigError(code="secret_host_invalid", name=declared.name, detail=host) from None


def _print_plan(
    out: Output,
    skill: Skill,
    chosen: Sequence[SecretDeclaration],
    grants: Sequence[SecretGrant],
) -> None:
    out.line(f"{sanitize(skill.name)}  {sanitize(skill.provenance.source_id)}")
    out.line(f"  sha256: {grants[0].sha256}")
    for declared, grant in zip(chosen, grants, strict=True):
        hosts, places = ", ".join(grant.hosts), ", ".join(grant.places)
        out.line("  " + out.text("secret_plan", name=grant.secret, hosts=hosts, places=places))
        if declared.description:
            out.line(f"    {sanitize(declared.description)}")


def revoke_secrets(out: Output, *, skill: str, secret: list[str] | None) -> None:
    """Revoke grants; the skill need not exist any more."""
    store = open_secret_store(out.config)
    wanted = set(secret or ()) or set(store.read().grants_of(skill))
    if not wanted & set(store.read().grants_of(skill)):
        raise ConfigError(code="secret_grant_unknown", name=skill)
    _audit(out, "secret_revoked", skill=skill, secrets=", ".join(sorted(wanted)))
    revoked = store.revoke(skill, wanted)
    data = {"revoked": [grant.model_dump(mode="json") for grant in revoked]}
    out.finish_line(data, "secret_revoked", name=skill, count=len(revoked))


def _read_value(out: Output, name: str, file: Path | None) -> str:
    """Read a value without showing it; one line break at its end is not part of it."""
    if file is not None:
        with file.open("rb") as opened:
            text = _decode(opened.read(_MAX_READ), name)
    elif sys.stdin.isatty():
        text = getpass.getpass(out.text("secret_prompt", name=name) + " ")
    else:
        text = _decode(sys.stdin.buffer.readline(_MAX_READ), name)
    return text.removesuffix("\n").removesuffix("\r")


def _decode(data: bytes, name: str) -> str:
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError:
        raise ConfigError(code="secret_not_text", name=name) from None


def _audit(out: Output, action: str, **facts: str) -> None:
    # Audited first: a change that cannot be recorded must not happen.
    AuditLog(out.config.data / "audit.jsonl").record(action, **facts)
