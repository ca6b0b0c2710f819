"""Diagnostics (`doctor`): probe platform, data directory, sandboxes and sources; redact secrets."""

import json
import os
import platform
import re
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import asdict, dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any, Literal, Protocol

import anyio.to_thread

from apexbridge import locales
from apexbridge.activation.agent_profiles import AgentProfiles
from apexbridge.catalog.catalog import SourceState
from apexbridge.errors import (
    AgentNotFoundError,
    SkillNotInvocableError,
    StateDamagedError,
    StorageError,
)
from apexbridge.locales import Language
from apexbridge.paths import commit_dir
from apexbridge.runtime.agent_folders import agent_folders
from apexbridge.runtime.container import Runtime
from apexbridge.runtime.protected_paths import protected_within
from apexbridge.runtime.script_runner import ResourceControls
from apexbridge.runtime.state_check import STATES, damaged_files, name_of
from apexbridge.sandbox.backend_selection import CanaryResult, SandboxSelection
from apexbridge.sandbox.workspace import Workspaces
from apexbridge.settings import ENVIRONMENT, Config, flatten
from apexbridge.skills import frontmatter

CheckState = Literal["ok", "warn", "fail"]

_REDACTED = "**********"
_SHOWN_PATHS = 3
_USER_INFO = re.compile(r"(?<=://)[^/\s@]+(?=@)")
_SECRET_NAME = re.compile(r"key|token|secret|passw|credential|authorization", re.IGNORECASE)


class Translate(Protocol):
    """Look up a diagnostics text in the user's language."""

    def __call__(self, key: str, **fields: object) -> str:
        """Return the text of a key, with its fields formatted."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """Result of one check."""

    name: str
    state: CheckState
    detail: str


def translator(language: Language) -> Translate:
    """Return a lookup for API responses, without the escaping that a terminal needs."""

    def translate(key: str, **fields: object) -> str:
        return locales.text("doctor", key, language, **fields)

    return translate


async def run_checks(
    translate: Translate, config: Config, opened: AbstractAsyncContextManager[Runtime]
) -> list[Check]:
    """Run all checks."""
    data = await anyio.to_thread.run_sync(_data_dir_check, translate, config)
    damaged = await anyio.to_thread.run_sync(damaged_files, config.data)
    skills = list[Check]()
    if STATES not in set(map(name_of, damaged)):  # no process starts without it
        async with opened as runtime:
            skills = await _runtime_checks(translate, runtime)
    project = await anyio.to_thread.run_sync(_project_check, translate, config)
    workspaces = await anyio.to_thread.run_sync(_workspaces_check, translate, config)
    variables = _variables_check(translate, config)
    state = _state_check(translate, damaged)
    found = [data, state, project, *skills, workspaces, variables]
    return [*_platform_checks(translate), *found]


def checks_to_json(config: Config, checks: list[Check]) -> dict[str, Any]:
    """Serialize the checks, version and effective settings."""
    return {
        "version": version("apexbridge"),
        "checks": [asdict(check) for check in checks],
        "settings": effective_settings(config),
    }


def effective_settings(config: Config) -> dict[str, dict[str, Any]]:
    """Return every setting by dotted name with its layer; secrets are redacted."""
    return {
        name: {
            "value": _redact(json.loads(json.dumps(value, default=_to_plain))),
            "origin": config.origins[name],
        }
        for name, value in flatten(config.settings).items()
    }


def _to_plain(value: object) -> object:
    dump = getattr(value, "model_dump", None)
    return dump() if callable(dump) else str(value)


def _redact(value: Any) -> Any:
    """Redact credentials in JSON, also inside URLs and tables."""
    match value:
        case str():
            return _USER_INFO.sub(_REDACTED, value)
        case list():
            return [_redact(one) for one in value]  # pyright: ignore[reportUnknownVariableType]
        case dict():
            return _redact_table(value)  # pyright: ignore[reportUnknownArgumentType]
        case _:
            return value


def _redact_table(table: Mapping[str, Any]) -> dict[str, Any]:
    return {
        name: _REDACTED if value and _SECRET_NAME.search(name) else _redact(value)
        for name, value in table.items()
    }


def _platform_checks(translate: Translate) -> Iterator[Check]:
    detail = f"{platform.python_version()}, apexbridge {version('apexbridge')}"
    yield Check(name=translate("check_python"), state="ok", detail=detail)
    yield Check(name=translate("check_platform"), state="ok", detail=platform.platform())
    encoding = (sys.stdout.encoding or "").lower()
    is_wide = encoding.replace("-", "") == "utf8"
    text = encoding if is_wide else translate("terminal_odd", encoding=encoding)
    yield Check(name=translate("check_terminal"), state="ok" if is_wide else "warn", detail=text)
    fast = frontmatter.is_compiled()
    parser = translate("parser_fast" if fast else "parser_slow")
    yield Check(name=translate("check_parser"), state="ok" if fast else "warn", detail=parser)


def _data_dir_check(translate: Translate, config: Config) -> Check:
    """Create, rename and remove a directory in the data directory, if that exists."""
    path = config.data
    name = translate("check_data")
    parent = next(parent for parent in path.absolute().parents if parent.exists())
    if not path.exists() and os.access(parent, os.W_OK):
        return Check(name=name, state="ok", detail=translate("data_later", path=path))
    try:
        with tempfile.TemporaryDirectory(dir=path, prefix=".doctor-") as trial:
            (Path(trial) / "a").mkdir()
            commit_dir(Path(trial) / "a", Path(trial) / "b")
    except (OSError, StorageError) as error:
        detail = translate("data_broken", path=path, detail=error)
        return Check(name=name, state="fail", detail=detail)
    return Check(name=name, state="ok", detail=translate("data_works", path=path))


def _state_check(translate: Translate, damaged: Sequence[StateDamagedError]) -> Check:
    detail = "; ".join(f"{name_of(e)}: {e.details['detail']}" for e in damaged)
    hint = translate("state_hint") if damaged else translate("state_ok")
    return Check(
        name=translate("check_state"),
        state="fail" if damaged else "ok",
        detail=f"{detail}. {hint}" if damaged else hint,
    )


async def _runtime_checks(translate: Translate, runtime: Runtime) -> list[Check]:
    names = ", ".join(runtime.extensions.names) or translate("none")
    extensions = Check(name=translate("check_extensions"), state="ok", detail=names)
    choice = await runtime.script_runner.select_sandbox(tries_all=True)
    sources = [
        _source_check(translate, state) for state in runtime.catalog.states if state.is_there()
    ]
    bounds = _resource_check(translate, runtime.script_runner.controls)
    agents = await _agents_check(translate, runtime)
    return [*_sandbox_checks(translate, choice), bounds, *sources, agents, extensions]


def _sandbox_checks(translate: Translate, choice: SandboxSelection) -> Iterator[Check]:
    """Yield a check for each sandbox backend; a missing one is a warning, never a failure."""
    chosen = choice.sandbox.name if choice.sandbox else ""
    for trial in choice.trials:
        text = translate(sandbox_message_key(trial, chosen), reason=trial.reason)
        state: CheckState = "ok" if trial.passed else "warn"
        yield Check(name=translate("check_sandbox", name=trial.name), state=state, detail=text)
    if choice.sandbox is None:
        name = translate("check_sandbox", name="-")
        yield Check(name=name, state="warn", detail=translate("sandbox_none"))


def sandbox_message_key(trial: CanaryResult, chosen: str) -> str:
    """Return the message key of a trial: the outcome, or how to install what is missing."""
    if trial.passed:
        return "sandbox_chosen" if trial.name == chosen else "sandbox_works"
    if trial.name == "bubblewrap" and trial.reason == "ENOENT":
        return "sandbox_get_bwrap"
    if trial.name == "bubblewrap" and "namespace" in trial.reason:
        return "sandbox_allow_namespaces"
    is_unknown = trial.reason in {"ENOTSUP", "EOPNOTSUPP"}  # one number, two names
    return "sandbox_get_landlock" if is_unknown else "sandbox_broken"


def _resource_check(translate: Translate, bounds: ResourceControls) -> Check:
    """Check the resource limits of scripts: cgroups and separate uids."""
    has_users = bounds.users is not None and bounds.users.is_enabled
    texts = (
        translate("bounds_groups" if bounds.groups else "bounds_no_groups"),
        translate("bounds_users" if has_users else "bounds_no_users"),
    )
    return Check(name=translate("check_bounds"), state="ok", detail="; ".join(texts))


def _source_check(translate: Translate, state: SourceState) -> Check:
    origin, _, place = state.source_id.partition(":")
    problems = state.scan.problems
    detail = translate(
        "source_counts", skills=len(state.scan.skills), problems=len(problems), place=place
    )
    return Check(
        name=translate("check_source", origin=origin),
        state="warn" if any(p.severity == "error" for p in problems) else "ok",
        detail=detail,
    )


async def _agents_check(translate: Translate, runtime: Runtime) -> Check:
    """Check agent files, and that each forked skill names an agent that there is."""
    sources = [state.source for state in runtime.catalog.states]
    profiles = AgentProfiles(tuple(agent_folders(runtime.config, sources)))
    found = await anyio.to_thread.run_sync(profiles.list)
    broken = [
        translate("agent_broken", path=one.path, detail=one.problem) for one in found if one.problem
    ]
    for skill in runtime.catalog.skills:
        try:
            if skill.manifest.context == "fork":
                await profiles.for_skill(skill)
        except AgentNotFoundError as error:
            broken.append(translate("agent_unknown", skill=skill.name, agent=error.name))
        except SkillNotInvocableError:
            pass  # its file is among the broken ones
    text = "; ".join(broken) or translate("agents_ok", count=len(found))
    return Check(name=translate("check_agents"), state="warn" if broken else "ok", detail=text)


def _workspaces_check(translate: Translate, config: Config) -> Check:
    """Warn of workspaces that could not be removed, and of entries that are none."""
    name = translate("check_workspaces")
    found = Workspaces(config.workspaces).leftovers()
    if not found:
        return Check(name=name, state="ok", detail=translate("workspaces_ok"))
    detail = translate("workspaces_left", count=len(found), paths=_first_paths(found))
    return Check(name=name, state="warn", detail=detail)


def _project_check(translate: Translate, config: Config) -> Check:
    """Warn of a project, as a home folder, with keys and passwords that tools are kept from."""
    name, found = translate("check_project"), protected_within(config)
    if not found:
        return Check(name=name, state="ok", detail=str(config.project))
    return Check(name=name, state="warn", detail=format_protected(translate, config.project, found))


def format_protected(translate: Translate, project: Path, found: Sequence[Path]) -> str:
    """Return what it means that a project contains protected paths."""
    return translate("project_protected", project=project, paths=_first_paths(found))


def _first_paths(found: Sequence[Path]) -> str:
    more = f" (+{len(found) - _SHOWN_PATHS})" if len(found) > _SHOWN_PATHS else ""
    return ", ".join(map(str, found[:_SHOWN_PATHS])) + more


def _variables_check(translate: Translate, config: Config) -> Check:
    unknown = config.unknown_variables
    count = sum(origin == ENVIRONMENT for origin in config.origins.values())
    detail = (
        translate("variables_unknown", names=", ".join(unknown))
        if unknown
        else translate("variables_ok", count=count)
    )
    return Check(
        name=translate("check_variables"), state="warn" if unknown else "ok", detail=detail
    )
