"""Store of environments: content-addressed folders, locks by requirements, and who uses what.

```text
environments/<key>/            a built environment, read-only; the key is the hash of its lock,
                               interpreter and platform
environments/locks/<key>.json  resolved versions with hashes, by the requirements
environments/uses/<key>.json   environments of a skill, by the hash of its files
environments/files/            files that several environments have, as hard links by content
environments/.staging/<id>/    being built; removed when its process is gone
```
"""

import hashlib
import json
import time
from collections.abc import Generator, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from apexbridge.environments.needs import Ecosystem
from apexbridge.environments.seal import MANIFEST, check_tree, make_read_only, tree_digest
from apexbridge.environments.shared_files import SharedFiles
from apexbridge.errors import StorageError
from apexbridge.paths import commit_dir, replace_bytes, storage_errors
from apexbridge.sandbox.workspace import Workspaces

_KEY_LENGTH = 32


def make_key(*parts: str) -> str:
    """Return the content address of some texts."""
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:_KEY_LENGTH]


@dataclass(frozen=True, slots=True, kw_only=True)
class Lock:
    """Resolved packages of a set of requirements: exact versions, each file by its hash."""

    ecosystem: Ecosystem
    requirements: tuple[str, ...]
    text: str
    """`requirements.txt` with hashes, or `package-lock.json`."""
    packages: tuple[str, ...] = ()
    """`name==version` of each."""
    builds_sources: bool = False
    """True if a package has no wheel here: its build runs its code, in the build sandbox."""
    dropped: tuple[str, ...] = ()
    """Guesses that the index does not have."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Environment:
    """A built environment."""

    key: str
    path: Path
    ecosystem: Ecosystem
    interpreter: str
    packages: tuple[str, ...]
    size: int
    digest: str
    created: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Use:
    """Environments of one state of a skill, by ecosystem."""

    skill: str
    root: str
    """Folder of the skill, by which it is known whether it is still there."""
    environments: Mapping[str, str] = field(default_factory=dict[str, str])


class EnvironmentStore:
    """Environments below one folder. All methods block."""

    def __init__(self, home: Path) -> None:
        self._home = home
        self._staging = Workspaces(home / ".staging")
        self._shared = SharedFiles(home / "files")

    @contextmanager
    def staging(self) -> Generator[Path]:
        """Lease a folder to build in; a process that dies leaves it to `sweep`."""
        with storage_errors(self._home):
            self._home.mkdir(parents=True, exist_ok=True, mode=0o755)
        with self._staging.lease() as place:
            yield place

    def sweep(self) -> int:
        """Remove what killed builds left and files of no environment; return the builds' number."""
        self._shared.sweep()
        return self._staging.sweep()

    def commit(
        self,
        built: Path,
        key: str,
        lock: Lock,
        *,
        interpreter: str,
        link: Path | None,
        max_bytes: int,
    ) -> Environment:
        """Check and seal a built folder, and move it to its address by one rename.

        Another process may have built the same meanwhile: its folder is as good.

        Raises:
            DependencyError: `dependencies_unsafe` or `dependencies_too_large`.
            StorageError: If the disk refuses.
        """
        size = check_tree(built, link, max_bytes)
        with storage_errors(built):
            make_read_only(built, self._shared.share)
        facts = {
            "ecosystem": lock.ecosystem,
            "interpreter": interpreter,
            "packages": list(lock.packages),
            "size": size,
            "digest": tree_digest(built),
            "created": time.time(),
        }
        replace_bytes(built / MANIFEST, json.dumps(facts, indent=1).encode())
        try:
            commit_dir(built, self._home / key)
        except StorageError:
            if self.get(key) is None:
                raise
        (self._home / key).chmod(0o555)  # only now: a folder that is moved must be writable
        found = self.get(key)
        if found is None:
            raise StorageError("the environment was removed", path=self._home / key)
        return found

    def path(self, key: str) -> Path:
        """Return the address of an environment, built or not."""
        return self._home / key

    def get(self, key: str) -> Environment | None:
        """Return a built environment."""
        path = self._home / key
        facts = _read_json(path / MANIFEST)
        if facts is None:
            return None
        packages = tuple(facts.pop("packages"))
        return Environment(key=key, path=path, packages=packages, **facts)

    def all(self) -> list[Environment]:
        """Return every environment, the newest last."""
        keys = (path.parent.name for path in self._home.glob(f"*/{MANIFEST}"))
        return sorted(filter(None, map(self.get, keys)), key=lambda found: found.created)

    def is_unchanged(self, found: Environment) -> bool:
        """Return whether the folder is as it was built; reads every file."""
        try:
            return tree_digest(found.path) == found.digest
        except OSError:
            return False

    def remove(self, key: str) -> None:
        """Remove an environment: renamed out of its address first, so that none is half there."""
        with self.staging() as place, storage_errors(self._home / key):
            (self._home / key).chmod(0o755)
            (self._home / key).rename(place / "old")

    def lock_of(self, key: str) -> Lock | None:
        """Return the lock of a set of requirements."""
        values = _read_json(self._home / "locks" / f"{key}.json")
        if values is None:
            return None
        for name in ("requirements", "packages", "dropped"):
            values[name] = tuple(values[name])
        return Lock(**values)

    def put_lock(self, key: str, lock: Lock) -> None:
        """Store a lock."""
        self._put("locks", key, asdict(lock))

    def use_of(self, fingerprint: str) -> Use | None:
        """Return the environments of a skill's present state."""
        values = _read_json(self._home / "uses" / f"{fingerprint}.json")
        return Use(**values) if values else None

    def put_use(self, fingerprint: str, use: Use) -> None:
        """Record which environments a skill uses."""
        self._put("uses", fingerprint, asdict(use))

    def uses(self) -> Iterator[tuple[str, Use]]:
        """Yield every recorded use with the fingerprint of the skill."""
        for path in sorted((self._home / "uses").glob("*.json")):
            use = self.use_of(path.stem)
            if use is not None:
                yield path.stem, use

    def remove_use(self, fingerprint: str) -> None:
        """Forget what a skill used; its environments stay until they are removed as unused."""
        (self._home / "uses" / f"{fingerprint}.json").unlink(missing_ok=True)

    def has_locks(self) -> bool:
        """Return whether anything was ever resolved here."""
        return (self._home / "locks").is_dir()

    def _put(self, folder: str, key: str, values: dict[str, Any]) -> None:
        path = self._home / folder / f"{key}.json"
        with storage_errors(path):
            path.parent.mkdir(parents=True, exist_ok=True, mode=0o755)
            replace_bytes(path, json.dumps(values, indent=1).encode())


def _read_json(path: Path) -> dict[str, Any] | None:
    """Return the object in a file; None if it is missing or damaged: it is built again."""
    try:
        values: Any = json.loads(path.read_bytes())
    except (OSError, ValueError):
        return None
    return values if isinstance(values, dict) else None  # pyright: ignore[reportUnknownVariableType]
