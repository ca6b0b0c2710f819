"""Progress bar on stderr, only where that is a terminal."""

import sys
from collections.abc import Generator
from contextlib import contextmanager

from apexbridge.cli.output import Output
from apexbridge.retrieval.results import NO_CALLBACKS, SyncCallbacks


@contextmanager
def progress_bar(out: Output, key: str = "indexing") -> Generator[SyncCallbacks]:
    """Show a transient progress bar labelled with the text `key`, fed by the yielded callback."""
    if out.as_json or out.is_quiet or not sys.stderr.isatty():
        yield NO_CALLBACKS
        return
    from rich.console import Console
    from rich.progress import Progress

    with Progress(console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(out.text(key), total=None)
        yield SyncCallbacks(
            progress=lambda now: bar.update(task, completed=now.done, total=now.total)
        )
