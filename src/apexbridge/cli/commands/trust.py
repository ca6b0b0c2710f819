"""`trust`: human approval of the scripts, hooks and tool grants of skills."""

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import PurePosixPath

import anyio

from apexbridge.activation.consent import consent_reasons
from apexbridge.catalog.snapshot import casefold_name
from apexbridge.cli.capabilities import print_capabilities
from apexbridge.cli.output import ExitCode, Output, sanitize
from apexbridge.errors import ApexBridgeError, PermissionDeniedError
from apexbridge.runtime import Runtime
from apexbridge.skills import tree
from apexbridge.skills.document import inline_commands
from apexbridge.skills.model import Skill

_SCRIPT_SUFFIXES = frozenset({".py", ".js", ".mjs", ".cjs", ".ts", ".mts", ".sh", ".bash", ".ps1"})


def trust(
    out: Output, *, names: list[str] | None, every: bool, revoke: bool, dry_run: bool, yes: bool
) -> None:
    """Print what the skills could do, ask for approval, and record it."""
    options = TrustOptions(
        names=tuple(names or ()), every=every, revokes=revoke, dry_run=dry_run, yes=yes
    )
    anyio.run(_trust, out, options)


@dataclass(frozen=True, slots=True, kw_only=True)
class TrustOptions:
    """Options of `trust`."""

    names: tuple[str, ...]
    every: bool
    revokes: bool
    dry_run: bool
    yes: bool


async def _trust(out: Output, options: TrustOptions) -> None:
    async with Runtime.open(out.config) as runtime:
        chosen = await _select_skills(runtime, options)
        for skill in chosen:
            commands = await _inline_commands(runtime, skill)
            _print_skill(out, skill, commands)
        wants_change = bool(options.names or options.every) and bool(chosen) and not options.dry_run
        question = "trust_ask_revoke" if options.revokes else "trust_ask"
        # With --quiet the capabilities are not printed, so consent would be uninformed.
        may_ask = not out.is_quiet
        is_agreed = wants_change and (
            options.yes or (may_ask and out.confirm(question, count=len(chosen)))
        )
        if is_agreed and options.revokes:
            await runtime.revoke(chosen)
        elif is_agreed:
            await runtime.approve(chosen)
        data = {
            "skills": [_as_json(skill) for skill in chosen],
            "changed": is_agreed,
            "revoked": is_agreed and options.revokes,
        }
        refused = wants_change and not is_agreed
        word = _result_key(options, chosen, is_agreed=is_agreed)
        code = ExitCode.DENIED if refused else ExitCode.OK
        out.finish_line(data, word, code, count=len(chosen))


def _result_key(options: TrustOptions, chosen: Sequence[Skill], *, is_agreed: bool) -> str:
    if not chosen:
        return "trust_none"
    if is_agreed:
        return "trust_revoked" if options.revokes else "trust_given"
    return "trust_waiting" if not (options.names or options.every) else "trust_unchanged"


async def _select_skills(runtime: Runtime, options: TrustOptions) -> list[Skill]:
    """Select skills to approve: by name, or all unapproved ones; to revoke: approved ones.

    A skill of the user's own folders needs no trust to run; named, it gets or loses the consent by
    which the model may use it without asking.
    """
    snapshot = runtime.catalog.snapshot
    # A shadowed skill's approval can be revoked too: it may become active again.
    hidden = snapshot.shadowed if options.revokes else ()
    every = [s for s in (*snapshot.skills, *hidden) if s.provenance.needs_trust or options.names]
    if options.names:
        named = {casefold_name(runtime.catalog.get(name).name) for name in options.names}
        every = [skill for skill in every if casefold_name(skill.name) in named]
    chosen = [s for s in every if await _may_change(runtime, s, revokes=options.revokes)]
    for skill in chosen if options.names else ():
        if skill.fingerprint is None:
            source = skill.provenance.source_id
            raise PermissionDeniedError(code="skill_unhashed", name=skill.name, source=source)
    return [s for s in chosen if s.fingerprint is not None or not options.every]


async def _may_change(runtime: Runtime, skill: Skill, *, revokes: bool) -> bool:
    if skill.provenance.needs_trust:
        return skill.is_trusted is revokes
    if not consent_reasons(skill, await _body(runtime, skill)):
        return False
    return await runtime.has_consent(skill) is revokes


async def _body(runtime: Runtime, skill: Skill) -> str:
    """Return the text; an empty one if its source cannot be reached, so that `trust` goes on."""
    with suppress(ApexBridgeError):
        return (await runtime.catalog.content(skill)).body
    return ""


async def _inline_commands(runtime: Runtime, skill: Skill) -> tuple[str, ...]:
    if not skill.provenance.may_run_shell:
        return ()
    return tuple(found.command for found in inline_commands(await _body(runtime, skill)))


def _print_skill(out: Output, skill: Skill, commands: Sequence[str]) -> None:
    """Print the source, what an approval enables, and the hash that is approved."""
    out.line(f"{sanitize(skill.name)}  {sanitize(skill.provenance.source_id)}")
    print_capabilities(out, skill, commands=commands, scripts=_scripts(skill))
    if skill.fingerprint is not None:
        out.line(f"  sha256: {skill.fingerprint.sha256}")


def _scripts(skill: Skill) -> list[str]:
    """Executable files and scripts by suffix: chmod +x does not change the content hash."""
    if skill.root is None:
        return []
    try:
        found = [e for e in tree.entries(skill.root, is_ours=False) if e.kind == "file"]
    except OSError:
        return []
    return [str(e.path) for e in found if e.executable or _is_script(e.path)]


def _is_script(path: PurePosixPath) -> bool:
    return path.suffix.lower() in _SCRIPT_SUFFIXES or path.parts[0] == "scripts"


def _as_json(skill: Skill) -> dict[str, object]:
    return {
        "name": skill.name,
        "source": skill.provenance.source_id,
        "sha256": skill.fingerprint.sha256 if skill.fingerprint else None,
        "allowed_tools": list(skill.manifest.allowed_tools),
        "hooks": list(skill.manifest.hooks),
        "scripts": _scripts(skill),
    }
