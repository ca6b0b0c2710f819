"""How far the work is: a bar on a terminal, and nothing anywhere else."""

import sys
from collections.abc import Generator
from contextlib import contextmanager

from apexbridge.cli.output import Out
from apexbridge.retrieval.report import UNWATCHED, Watch


@contextmanager
def watching(out: Out, key: str = "vectorising") -> Generator[Watch]:
    """Lend someone to be told of the work; `key` is its word. The bar goes with the work."""
    if out.as_json or out.is_quiet or not sys.stderr.isatty():
        yield UNWATCHED
        return
    from rich.console import Console
    from rich.progress import Progress

    with Progress(console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(out.word(key), total=None)
        yield Watch(progress=lambda now: bar.update(task, completed=now.done, total=now.total))
