"""Background tagging: ask the language model for missing tags outside of any request.

Installs and searches use keyword tags at once and never wait for a model. A long-lived process
(`apexbridge serve`, `apexbridge mcp`) runs one `BackgroundTagger`, which sends one request at a
time, stores the answer by content hash and updates that row of the index.
"""

import logging
import math
import random
import time
from collections.abc import Awaitable, Callable, Collection
from pathlib import Path
from typing import Literal

import anyio
from anyio import to_thread
from pydantic import BaseModel, ConfigDict

from apexbridge.catalog.catalog import Catalog
from apexbridge.errors import (
    ApexBridgeError,
    ModelError,
    ModelOutputError,
    ModelRejectedError,
    ModelUnavailableError,
    StateDamagedError,
    StorageError,
)
from apexbridge.lifecycle.index_updates import TagRound
from apexbridge.retrieval.indexer import TagPolicy
from apexbridge.retrieval.model_tags import ModelTagger
from apexbridge.skills.model import Skill
from apexbridge.state_files import StateFile

log = logging.getLogger(__name__)

_UNUSABLE_SECONDS, _MAX_UNUSABLE_SECONDS = 3_600.0, 7 * 86_400.0
_MAX_FAILURES = 2_000
_UNAVAILABLE_SECONDS, _MAX_UNAVAILABLE_SECONDS = 1.0, 300.0
_CONTENT_STATUSES = frozenset({400, 413})


def backoff_seconds(attempt: int, first: float, longest: float) -> float:
    """Exponential backoff with jitter: double the delay each attempt, take 50 to 100 % of it."""
    delay = min(longest, first * 2.0 ** min(attempt, 32))
    return delay * random.uniform(0.5, 1.0)  # noqa: S311  # spreads load, guards no secret


class _Failure(BaseModel):
    attempts: int
    retry_at: float


class _FailureFile(BaseModel):
    model_config = ConfigDict(extra="ignore")

    version: Literal[1] = 1
    model: str
    failures: dict[str, _Failure] = {}


class TagFailures:
    """Unusable answers by content hash, in a JSON file, so that a restart does not repeat them.

    The file belongs to one model: with another model, address or prompt it starts empty.
    """

    def __init__(self, path: Path, model: str) -> None:
        self._file = StateFile(path, _FailureFile)
        self._model = model
        self._failures: dict[str, _Failure] | None = None

    def retry_at(self, sha256: str) -> float:
        """Return the time, in seconds since the epoch, before which content is not sent again."""
        failure = self._load().get(sha256)
        return failure.retry_at if failure else 0.0

    def add(self, sha256: str) -> None:
        """Remember a failure; each further one of the same content doubles the delay."""
        failures = self._load()
        earlier = failures.pop(sha256, None)  # inserted again below, as the most recent one
        attempts = earlier.attempts if earlier else 0
        delay = backoff_seconds(attempts, _UNUSABLE_SECONDS, _MAX_UNUSABLE_SECONDS)
        failures[sha256] = _Failure(attempts=attempts + 1, retry_at=time.time() + delay)
        while len(failures) > _MAX_FAILURES:
            # By age, not by what is installed: a skill that is disabled for a while is not sent
            # again when it is enabled.
            del failures[next(iter(failures))]
        self._save()

    def _load(self) -> dict[str, _Failure]:
        if self._failures is None:
            try:
                stored = self._file.read_if_exists()
            except StateDamagedError as error:  # derived: it only saves requests to the model
                log.warning("Failed tag requests are forgotten: %s", error)
                stored = None
            is_ours = stored is not None and stored.model == self._model
            self._failures = stored.failures if stored and is_ours else {}
        return self._failures

    def _save(self) -> None:
        stored = _FailureFile(model=self._model, failures=self._load())
        try:
            self._file.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._file.write(stored)
        except (OSError, StorageError) as error:
            log.warning("Failed tag requests are not stored: %s", error)


class BackgroundTagger:
    """Tags installed skills that the language model has not tagged yet, one request at a time."""

    def __init__(
        self,
        tagger: ModelTagger,
        policy: TagPolicy,
        failures: TagFailures,
        *,
        catalog: Catalog,
        reindex: Callable[[Collection[str]], Awaitable[object]],
    ) -> None:
        self._tagger = tagger
        self._policy = policy
        self._failures = failures
        self._catalog = catalog
        self._reindex = reindex
        self._woken = anyio.Event()
        self._tried: dict[str, int] = {}
        self._lock = anyio.Lock()

    def wake(self) -> None:
        """Look for untagged skills again: some were installed or changed."""
        self._woken.set()

    async def run(self) -> None:
        """Tag skills until cancelled; no error ends it, because a server goes on."""
        unavailable = 0
        while True:
            self._woken = anyio.Event()
            due, next_at = await to_thread.run_sync(self._due)
            if not due:
                with anyio.move_on_after(max(0.0, next_at - time.time())):
                    await self._woken.wait()
                continue
            try:
                await self._tag(due[0])
                unavailable = 0
            except ModelError as error:
                delay = backoff_seconds(unavailable, _UNAVAILABLE_SECONDS, _MAX_UNAVAILABLE_SECONDS)
                log.warning("No tags from the model, retry in %.0f s: %s", delay, error)
                unavailable += 1
                await anyio.sleep(delay)
            except Exception:
                log.warning("Background tagging failed, retry later", exc_info=True)
                await anyio.sleep(_MAX_UNAVAILABLE_SECONDS)

    async def run_once(self) -> TagRound:
        """Tag every untagged skill now, also those in backoff; stop if the model is unavailable."""
        missing = await to_thread.run_sync(self._missing)
        tagged = list[str]()
        for skill in missing:
            try:
                if await self._tag(skill):
                    tagged.append(skill.name)
            except ModelError as error:
                return TagRound(tagged=tuple(tagged), left=len(missing) - len(tagged), error=error)
        return TagRound(tagged=tuple(tagged), left=len(missing) - len(tagged))

    def _missing(self) -> list[Skill]:
        return [skill for skill in self._catalog.skills if self._policy.is_missing(skill)]

    def _due(self) -> tuple[list[Skill], float]:
        """Return the skills to send now, the least tried first, and when the next one is due."""
        missing = self._missing()
        now, next_at, due = time.time(), math.inf, list[Skill]()
        for skill in missing:
            retry_at = self._failures.retry_at(_sha256(skill))
            if retry_at <= now:
                due.append(skill)
            else:
                next_at = min(next_at, retry_at)
        # Least tried first: content on which the model hangs must not starve the others.
        return sorted(due, key=lambda skill: self._tried.get(_sha256(skill), 0)), next_at

    async def _tag(self, skill: Skill) -> bool:
        """Send one request; store the tags and update the row, or remember the failure.

        Raises:
            ModelError: If the model is unavailable or rejects the request; not if its answer is
                unusable, which is a failure of this content alone.
        """
        sha256 = _sha256(skill)
        self._tried[sha256] = self._tried.get(sha256, 0) + 1
        try:
            async with self._lock:
                body = (await self._catalog.content(skill)).body
                tags = await self._tagger.tags(name=skill.name, summary=skill.summary, body=body)
            if self._policy.store is not None:
                await to_thread.run_sync(self._policy.store.put, sha256, tags)
            if await to_thread.run_sync(self._policy.is_missing, skill):
                # Without this check, tags that cannot be read back would be requested for ever.
                raise ModelOutputError("its tags cannot be stored", name=self._tagger.model_name)
        except ModelUnavailableError:
            raise  # says nothing about this content
        except ApexBridgeError as error:  # the answer, the source or the disk
            if isinstance(error, ModelRejectedError) and not _is_about_content(error):
                raise
            log.warning("%s keeps its keyword tags: %s", skill.name, error)
            await to_thread.run_sync(self._failures.add, sha256)
            if isinstance(error, ModelRejectedError):
                raise
            return False
        # Shielded, so that a shutdown does not leave a row without its marker to embed again.
        with anyio.CancelScope(shield=True):
            await self._reindex([skill.name])
        return True


def _is_about_content(error: ModelRejectedError) -> bool:
    """Return whether the request was refused for what it says, not for its key or model name."""
    return error.details.get("status") in _CONTENT_STATUSES


def _sha256(skill: Skill) -> str:
    return skill.fingerprint.sha256 if skill.fingerprint else ""
