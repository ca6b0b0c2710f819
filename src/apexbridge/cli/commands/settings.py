"""`config`: effective settings and their origins."""

import os
from collections.abc import Iterable

from apexbridge.cli.output import Output, sanitize
from apexbridge.settings import current_name, flatten


def config(out: Output, *, key: str) -> None:
    """Print all settings with their origins, or the value of one."""
    loaded = out.config
    if key:
        value, key = loaded.value(key), current_name(key)
        data = {"key": key, "value": value, "origin": loaded.origins[key]}
        out.finish(data, lambda: out.line(sanitize(_text(value))))
        return
    from apexbridge.runtime.diagnostics import effective_settings  # loads the whole runtime

    rows = [(name, loaded.origins[name], _text(v)) for name, v in flatten(loaded.settings).items()]
    heads = [out.text("setting"), out.text("from"), out.text("value")]
    out.finish(effective_settings(loaded), lambda: out.table(heads, rows))


def _text(value: object) -> str:
    """Format a value as it is written in an environment variable."""
    return os.pathsep.join(map(str, _parts(value))) or "-"


def _parts(value: object) -> Iterable[object]:
    return value if isinstance(value, tuple) else (value,)  # pyright: ignore[reportUnknownVariableType]
