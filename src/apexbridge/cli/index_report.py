"""Report of index syncs on the terminal: entries kept, added, redone and removed."""

from apexbridge.cli.output import Output
from apexbridge.events import Event, EventSink, IndexSynced


def changes_noted(out: Output) -> EventSink:
    """Return an event sink that notes each sync of the index in which something changed."""

    def note(event: Event) -> None:
        if isinstance(event, IndexSynced) and event.has_changes:
            out.note(_line(out, event))

    return note


def first_sync_printed(out: Output) -> EventSink:
    """Return an event sink that prints the sync at a server's start, and none of the later ones."""
    seen = list[IndexSynced]()

    def show(event: Event) -> None:
        if isinstance(event, IndexSynced) and not seen:
            seen.append(event)
            out.line(_line(out, event))

    return show


def _line(out: Output, event: IndexSynced) -> str:
    return out.text(
        "index_synced",
        kept=event.kept,
        added=len(event.added),
        redone=len(event.redone),
        removed=len(event.removed),
    )
