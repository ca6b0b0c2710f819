"""`doctor` and `config`: what works here, and what was chosen by whom."""

import os
from collections.abc import Iterable, Iterator

import anyio

from apexbridge.cli.output import Exit, Out, visible
from apexbridge.runtime import Runtime
from apexbridge.runtime.doctoring import examine, report, shown_settings
from apexbridge.settings import Loaded, flatten

_MARKS = {"ok": "✓", "warn": "!", "fail": "✗"}


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
    out.finish(
        shown_settings(loaded),
        lambda: out.table(heads, [(name, of, text) for name, text, of in rows]),
    )


def _values(loaded: Loaded) -> Iterator[tuple[str, object]]:
    return iter(flatten(loaded.settings).items())


def _text(value: object) -> str:
    """A setting as it would be written in the environment."""
    return os.pathsep.join(map(str, _parts(value))) or "-"


def _parts(value: object) -> Iterable[object]:
    return value if isinstance(value, tuple) else (value,)  # pyright: ignore[reportUnknownVariableType]


def doctor(out: Out, *, is_short: bool = False) -> None:
    """Try everything and tell; in short, what does not work and no settings."""
    loaded = out.loaded  # the words are in its language
    checks = anyio.run(examine, out.word, loaded, Runtime.open(loaded))
    failed = sum(check.state == "fail" for check in checks)
    warned = sum(check.state == "warn" for check in checks)

    def render() -> None:
        told = [c for c in checks if not is_short or c.state != "ok"]
        if told:
            rows = [(f"{_MARKS[c.state]} {c.name}", c.detail) for c in told]
            out.table([out.word("check"), out.word("result")], rows)
        if not is_short:
            config(out, "")
        key = "doctor_fail" if failed else "doctor_warn" if warned else "doctor_ok"
        out.line(out.word(key, count=failed or warned))

    data = report(loaded, checks)
    out.finish(data, render, Exit.FAILURE if failed else Exit.OK)
