"""`doctor` and `config`: what works here, and what was chosen by whom."""

import os
import platform
import sys
import tempfile
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Literal

import anyio

from apexbridge.catalog.catalog import SourceState
from apexbridge.cli.output import Exit, Out, visible
from apexbridge.errors import StorageError
from apexbridge.paths import commit_folder
from apexbridge.runtime import Bounds, Runtime
from apexbridge.sandbox.ladder import Choice, Trial
from apexbridge.settings import ENVIRONMENT, Loaded, flatten
from apexbridge.skills import frontmatter

State = Literal["ok", "warn", "fail"]

_MARKS = {"ok": "✓", "warn": "!", "fail": "✗"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """One thing that was tried, and what came of it."""

    name: str
    state: State
    detail: str


def config(out: Out, key: str) -> None:
    """Show the settings, or one of them."""
    loaded = out.loaded
    if key:
        value = loaded.value(key)
        data = {"key": key, "value": value, "origin": loaded.origins[key]}
        out.finish(data, lambda: out.line(visible(_text(value))))
        return
    rows = [(name, _text(value), loaded.origins[name]) for name, value in _values(loaded)]
    heads = [out.word("setting"), out.word("from"), out.word("value")]
    data = {
        name: {"value": value, "origin": loaded.origins[name]} for name, value in _values(loaded)
    }
    out.finish(data, lambda: out.table(heads, [(name, of, text) for name, text, of in rows]))


def _values(loaded: Loaded) -> Iterator[tuple[str, object]]:
    return iter(flatten(loaded.settings).items())


def _text(value: object) -> str:
    """A setting as it would be written in the environment."""
    return os.pathsep.join(map(str, _parts(value))) or "-"


def _parts(value: object) -> Iterable[object]:
    return value if isinstance(value, tuple) else (value,)  # pyright: ignore[reportUnknownVariableType]


def doctor(out: Out) -> None:
    """Try everything and tell."""
    checks = [*_machine(out), _data(out, out.loaded), *anyio.run(_skills, out), _variables(out)]
    failed = sum(check.state == "fail" for check in checks)
    warned = sum(check.state == "warn" for check in checks)

    def render() -> None:
        rows = [(f"{_MARKS[c.state]} {c.name}", c.detail) for c in checks]
        out.table([out.word("check"), out.word("result")], rows)
        config(out, "")
        key = "doctor_fail" if failed else "doctor_warn" if warned else "doctor_ok"
        out.line(out.word(key, count=failed or warned))

    data = {
        "version": version("apexbridge"),
        "checks": [{"name": c.name, "state": c.state, "detail": c.detail} for c in checks],
        "settings": {
            k: {"value": v, "origin": out.loaded.origins[k]} for k, v in _values(out.loaded)
        },
    }
    out.finish(data, render, Exit.FAILURE if failed else Exit.OK)


def _machine(out: Out) -> Iterator[Check]:
    detail = f"{platform.python_version()}, apexbridge {version('apexbridge')}"
    yield Check(name=out.word("check_python"), state="ok", detail=detail)
    yield Check(name=out.word("check_platform"), state="ok", detail=platform.platform())
    encoding = (sys.stdout.encoding or "").lower()
    is_wide = encoding.replace("-", "") == "utf8"
    text = encoding if is_wide else out.word("terminal_odd", encoding=encoding)
    yield Check(name=out.word("check_terminal"), state="ok" if is_wide else "warn", detail=text)
    fast = frontmatter.is_compiled()
    parser = out.word("parser_fast" if fast else "parser_slow")
    yield Check(name=out.word("check_parser"), state="ok" if fast else "warn", detail=parser)


def _data(out: Out, loaded: Loaded) -> Check:
    """Really make, move and remove something where data is kept, if the folder is there."""
    path = loaded.data
    name = out.word("check_data")
    if not path.exists() and os.access(_existing(path), os.W_OK):
        return Check(name=name, state="ok", detail=out.word("data_later", path=path))
    try:
        with tempfile.TemporaryDirectory(dir=path, prefix=".doctor-") as trial:
            (Path(trial) / "a").mkdir()
            commit_folder(Path(trial) / "a", Path(trial) / "b")
    except (OSError, StorageError) as error:
        detail = out.word("data_broken", path=path, detail=error)
        return Check(name=name, state="fail", detail=detail)
    return Check(name=name, state="ok", detail=out.word("data_works", path=path))


def _existing(path: Path) -> Path:
    return next(parent for parent in path.absolute().parents if parent.exists())


async def _skills(out: Out) -> list[Check]:
    async with Runtime.open(out.loaded) as runtime:
        names = ", ".join(runtime.extensions.names) or out.word("none")
        extensions = Check(name=out.word("check_extensions"), state="ok", detail=names)
        choice = await runtime.executing.choose_sandbox(tries_all=True)
        sources = [_source(out, state) for state in runtime.catalog.states if state.is_there()]
        return [
            *_sandboxes(out, choice),
            _bounds(out, runtime.executing.bounds),
            *sources,
            extensions,
        ]


def _sandboxes(out: Out, choice: Choice) -> Iterator[Check]:
    """Each backend that was tried; a weaker one that works makes the missing a remark only."""
    chosen = choice.sandbox.name if choice.sandbox else ""
    for trial in choice.trials:
        text = out.word(sandbox_word(trial, chosen), reason=trial.reason)
        state: State = "ok" if trial.passed else "warn"
        yield Check(name=out.word("check_sandbox", name=trial.name), state=state, detail=text)
    if choice.sandbox is None:
        name = out.word("check_sandbox", name="-")
        yield Check(name=name, state="warn", detail=out.word("sandbox_none"))


def sandbox_word(trial: Trial, chosen: str) -> str:
    """What is said of a trial: where it failed, how to get what is missing."""
    if trial.passed:
        return "sandbox_chosen" if trial.name == chosen else "sandbox_works"
    if trial.name == "bubblewrap" and trial.reason == "ENOENT":
        return "sandbox_get_bwrap"
    if trial.name == "bubblewrap" and "namespace" in trial.reason:
        return "sandbox_allow_namespaces"
    is_unknown = trial.reason in {"ENOTSUP", "EOPNOTSUPP"}  # one number, two names
    return "sandbox_get_landlock" if is_unknown else "sandbox_broken"


def _bounds(out: Out, bounds: Bounds) -> Check:
    """What bounds scripts here; without control groups a remark."""
    has_users = bounds.users is not None and bounds.users.is_enabled
    told = (
        out.word("bounds_groups" if bounds.groups else "bounds_no_groups"),
        out.word("bounds_users" if has_users else "bounds_no_users"),
    )
    return Check(
        name=out.word("check_bounds"),
        state="ok",
        detail="; ".join(told),
    )


def _source(out: Out, state: SourceState) -> Check:
    origin, _, place = state.source.id.partition(":")
    problems = state.scan.problems
    detail = out.word(
        "source_counts", skills=len(state.scan.skills), problems=len(problems), place=place
    )
    return Check(
        name=out.word("check_source", origin=origin),
        state="warn" if any(p.severity == "error" for p in problems) else "ok",
        detail=detail,
    )


def _variables(out: Out) -> Check:
    unknown = out.loaded.unknown_variables
    count = sum(origin == ENVIRONMENT for origin in out.loaded.origins.values())
    detail = (
        out.word("variables_unknown", names=", ".join(unknown))
        if unknown
        else out.word("variables_ok", count=count)
    )
    return Check(name=out.word("check_variables"), state="warn" if unknown else "ok", detail=detail)
