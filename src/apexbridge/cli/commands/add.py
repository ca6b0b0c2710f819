"""`add`: fetch an address, show what its skills contain, ask, and install."""

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from apexbridge.cli.commands.deps import agrees_to_build, build_installed
from apexbridge.cli.commands.install import change_to_json, print_change, print_inspection
from apexbridge.cli.commands.lock import LockChoice, lock_choice, write_lock
from apexbridge.cli.output import ExitCode, Output, exit_code_for, sanitize
from apexbridge.cli.runtime_call import with_runtime
from apexbridge.errors import ApexBridgeError, PermissionDeniedError, SourceError
from apexbridge.lifecycle.inspection import Inspection
from apexbridge.lifecycle.scan_results import BlockLevel
from apexbridge.runtime import Runtime
from apexbridge.runtime.install_service import (
    InstallOutcome,
    Offers,
    SkillOffer,
)

_PROBLEMS_SHOWN = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class AddOptions:
    """Options of `add`."""

    address: str
    names: tuple[str, ...]
    every: bool
    rename: bool
    blocks_at: BlockLevel
    yes: bool
    lock: LockChoice

    @property
    def is_list(self) -> bool:
        """True if the answer is a list, however many skills there are."""
        return self.every or len(self.names) > 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Added:
    """What was installed from where."""

    offers: Offers
    outcomes: tuple[InstallOutcome, ...]


def add(
    out: Output,
    *,
    address: str,
    skill: list[str] | None,
    every: bool,
    list_only: bool,
    rename: bool,
    allow_findings: bool,
    lock: Path | None,
    no_lock: bool,
    yes: bool,
) -> None:
    """List the skills of an address, or install those that are chosen."""
    if list_only:
        _print_offers(out, with_runtime(out, lambda runtime: _list(runtime, address)))
        return
    options = AddOptions(
        address=address,
        names=tuple(skill or ()),
        every=every,
        rename=rename,
        blocks_at=None if allow_findings else "policy",
        yes=yes,
        lock=lock_choice(out, lock, no_lock=no_lock),
    )
    added = with_runtime(out, lambda runtime: _add(out, runtime, options))
    if len(added.outcomes) == 1 and not options.is_list:
        outcome = added.outcomes[0]
        if outcome.error is not None or outcome.result is None:
            raise outcome.error or SourceError(code="source_no_skills", source=address)
        print_change(out, outcome.result, "added")
        return
    _print_outcomes(out, added)


async def _list(runtime: Runtime, address: str) -> Offers:
    async with runtime.installer(allows_ssh=True).open(address) as offers:
        return offers


async def _add(out: Output, runtime: Runtime, options: AddOptions) -> Added:
    installer = runtime.installer(allows_ssh=True)
    async with installer.open(
        options.address, renames="titles" if options.rename else False
    ) as offers:
        chosen = _choose(out, offers, options)
        is_one = len(chosen) == 1 and not options.is_list
        outcomes, ready = list[InstallOutcome](), list[tuple[SkillOffer, Inspection]]()
        for skill in chosen:
            try:
                found = await installer.inspect(offers, skill)
                print_inspection(out, found)
                for problem in offers.problems:
                    if skill.where and problem.where.startswith(f"{skill.where}/"):
                        out.print_problem(problem)
                ready.append((skill, found))
            except ApexBridgeError as error:
                if is_one:
                    raise
                outcomes.append(_failed(skill, error))
        _confirm(out, [skill for skill, _ in ready], options)
        for skill, found in ready:
            lacks = await runtime.dependencies.lacks(found.needs)
            agreed = lacks and agrees_to_build(out, found.needs, skill.name, yes=options.yes)
            done = await installer.install_offer(
                offers, skill, blocks_at=options.blocks_at, sha256=found.sha256
            )
            if done.result is not None:
                await build_installed(out, runtime, done.result.skill, agreed=agreed)
            outcomes.append(done)
        names = [done.name for done in outcomes if done.result is not None]
        await write_lock(runtime, installer, options.lock, names, adds=True)
    order = [skill.where for skill in chosen]
    return Added(
        offers=offers, outcomes=tuple(sorted(outcomes, key=lambda o: order.index(o.where)))
    )


def _failed(skill: SkillOffer, error: ApexBridgeError) -> InstallOutcome:
    return InstallOutcome(name=skill.name, where=skill.where, error=error)


def _confirm(out: Output, ready: Sequence[SkillOffer], options: AddOptions) -> None:
    """Ask once for all skills whose reports were shown.

    Raises:
        PermissionDeniedError: `not_agreed`.
    """
    if not ready or options.yes:
        return
    names = ", ".join(skill.name for skill in ready)
    is_agreed = (
        out.confirm("add_ask", name=names)
        if len(ready) == 1
        else out.confirm("add_ask_several", count=len(ready), names=names)
    )
    if not is_agreed:
        raise PermissionDeniedError(code="not_agreed")


def _choose(out: Output, offers: Offers, options: AddOptions) -> tuple[SkillOffer, ...]:
    try:
        return offers.choose(options.names, every=options.every)
    except SourceError as error:
        if error.code != "source_choice" or out.as_json or not sys.stdin.isatty():
            raise
        return _ask_which(out, offers)


def _ask_which(out: Output, offers: Offers) -> tuple[SkillOffer, ...]:
    """Let a person choose from a numbered list.

    Raises:
        PermissionDeniedError: `not_agreed` for an empty answer.
    """
    for number, skill in enumerate(offers.skills, 1):
        out.line(f"{number:4}  {sanitize(skill.name)}  {sanitize(skill.description)[:100]}")
    print(out.text("add_which"), end=" ", flush=True)
    words = sys.stdin.readline().replace(",", " ").split()
    if not words:
        raise PermissionDeniedError(code="not_agreed")
    if [word.lower() for word in words] == ["all"]:
        return offers.choose(every=True)
    numbers = {str(number): skill for number, skill in enumerate(offers.skills, 1)}
    found = [numbers[word] if word in numbers else offers.choose([word])[0] for word in words]
    return tuple(dict.fromkeys(found))


def _print_offers(out: Output, offers: Offers) -> None:
    """Print what an address has; nothing is installed."""

    def draw() -> None:
        heads = [out.text(key) for key in ("name", "field_path", "description")]
        out.table(heads, [(s.name, s.where or ".", s.description) for s in offers.skills])
        for problem in offers.problems[:_PROBLEMS_SHOWN]:
            out.print_problem(problem)
        if len(offers.problems) > _PROBLEMS_SHOWN:
            out.line(f"  (+{len(offers.problems) - _PROBLEMS_SHOWN})")
        revision = offers.address.revision
        out.line(out.text("add_listed", count=len(offers.skills), source=offers.address))
        if revision:
            out.line(f"  {out.text('field_revision')}: {revision}")

    data = {
        **_source_to_json(offers),
        "skills": [
            {
                "name": skill.name,
                "description": skill.description,
                "path": skill.where,
                "plugin": skill.plugin,
                "problems": [out.problem_to_json(problem) for problem in skill.problems],
            }
            for skill in offers.skills
        ],
        "problems": [out.problem_to_json(problem) for problem in offers.problems],
    }
    out.finish(data, draw)


def _print_outcomes(out: Output, added: Added) -> None:
    """Finish with each result; the exit code is that of the first failure."""
    errors = [outcome.error for outcome in added.outcomes if outcome.error is not None]

    def draw() -> None:
        for outcome in added.outcomes:
            if outcome.error is None:
                out.line(out.text("added", name=outcome.name))
            else:
                message = outcome.error.localized(out.language).message
                out.line(
                    out.text(
                        "add_failed", name=outcome.name, message=message, code=outcome.error.code
                    )
                )
        done = len(added.outcomes) - len(errors)
        out.line(out.text("add_total", done=done, failed=len(errors)))

    data = {
        **_source_to_json(added.offers),
        "skills": [outcome_to_json(out, outcome) for outcome in added.outcomes],
    }
    out.finish(data, draw, exit_code_for(errors[0]) if errors else ExitCode.OK)


def outcome_to_json(out: Output, outcome: InstallOutcome) -> dict[str, object]:
    """Serialize the result of one of several installs."""
    error = outcome.error
    return {
        "name": outcome.name,
        "where": outcome.where,
        "installed": outcome.result is not None,
        **(change_to_json(out, outcome.result) if outcome.result else {}),
        "error": error
        and {"code": error.code, **error.localized(out.language)._asdict(), "param": None},
    }


def _source_to_json(offers: Offers) -> dict[str, object]:
    address = offers.address
    return {"source": address.source, "ref": address.ref, "revision": address.revision}
