"""In-memory vector store, for tests and previews."""

from collections.abc import Iterable, Mapping, Sequence

from apexbridge.retrieval.base import IndexEntry, Matrix, Neighbour, StoreChanges
from apexbridge.retrieval.stores.serialization import (
    check_dimensions,
    nearest_entries,
    validate_entries,
)


class MemoryStore:
    """Vector store in a dictionary."""

    def __init__(self, embedder_id: str = "memory") -> None:
        self._embedder = embedder_id
        self._entries: dict[str, IndexEntry] = {}
        self._touched: set[str] | None = None

    @property
    def embedder_id(self) -> str:
        """Id of the embedder whose entries these are."""
        return self._embedder

    async def others(self) -> Sequence[str]:
        """Return nothing: there is one embedder only."""
        return ()

    async def fingerprints(self) -> Mapping[str, str]:
        """Return the fingerprint of each stored skill."""
        return {name: entry.fingerprint for name, entry in self._entries.items()}

    async def upsert(self, entries: Sequence[IndexEntry]) -> None:
        """Insert or replace entries."""
        batch = validate_entries(entries, self._embedder)
        held = next(iter(self._entries.values()), None)
        if held and batch:
            check_dimensions(batch[0].vectors.shape[1], held.vectors.shape[1], self._embedder)
        self._entries.update({entry.name: entry for entry in batch})
        self._touch([entry.name for entry in batch])

    async def delete(self, names: Sequence[str]) -> None:
        """Delete entries."""
        self._touch([name for name in names if self._entries.pop(name, None)])

    def has_changed(self) -> bool:
        """Say whether anything changed since the last call of `changes`."""
        return self._touched is None or bool(self._touched)

    async def changes(self) -> StoreChanges:
        """Return what changed since the last call."""
        touched, self._touched = self._touched, set()
        if touched is None:
            return StoreChanges(entries=tuple(self._entries.values()), is_all=True)
        return StoreChanges(
            entries=tuple(self._entries[name] for name in sorted(touched & self._entries.keys())),
            gone=sorted(touched - self._entries.keys()),
        )

    async def nearest(self, vector: Matrix, *, text: str, limit: int) -> Sequence[Neighbour]:
        """Search exhaustively; there is no full-text index."""
        return nearest_entries(
            self._entries.values(), vector, limit=limit, embedder_id=self._embedder
        )

    async def check(self) -> Sequence[str]:
        """Return no problems."""
        return ()

    async def forget_others(self) -> int:
        """Do nothing: there is one embedder only."""
        return 0

    async def close(self) -> None:
        """Do nothing: there are no resources."""

    def _touch(self, names: Iterable[str]) -> None:
        if self._touched is not None:
            self._touched.update(names)
