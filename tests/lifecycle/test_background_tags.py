"""Background tagging: installs and searches never wait for a language model, tags arrive later."""

import json
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import pytest

from apexbridge.lifecycle import background_tags
from apexbridge.lifecycle.background_tags import TagFailures, backoff_seconds
from apexbridge.models.base import ModelDelta
from apexbridge.retrieval import model_tags
from apexbridge.runtime import Runtime
from apexbridge.runtime.description_preview import preview_description
from apexbridge.runtime.fsck import check_data_dir
from apexbridge.settings import load
from apexbridge.skills import tree
from apexbridge.testing import (
    BrokenStream,
    RawResponse,
    ScriptedServer,
    make_skill,
    make_zip,
    skill_md,
)
from tests.server.process import server_process
from tests.server.raw_http import send_request

pytestmark = pytest.mark.anyio

ANSWER = {
    "tags_en": ["invoice", "billing"],
    "tags_zh": ["发票", "报销"],
    "description_en": "Makes invoices.",
    "description_zh": "根据订单开具发票。",
}
TAGS = [ModelDelta(text=json.dumps(ANSWER))]
PROSE = [ModelDelta(text="I would rather not.")]
HANG = BrokenStream(deltas=(), then="hang")


@pytest.fixture(autouse=True)
def short_timeouts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Give up on a hanging model after 50 ms, and retry soon."""
    monkeypatch.setattr(model_tags, "_TIMEOUT_SECONDS", 0.05)
    monkeypatch.setattr(background_tags, "_UNAVAILABLE_SECONDS", 0.01)
    monkeypatch.setattr(background_tags, "_MAX_UNAVAILABLE_SECONDS", 0.02)


@asynccontextmanager
async def _open(
    home: Path, server: ScriptedServer, *, lives: bool = True, model: str = "scripted"
) -> AsyncGenerator[Runtime]:
    environment = {
        "HOME": str(home),
        "APEXBRIDGE_INDEX__EMBEDDER": "hash",
        "APEXBRIDGE_SKILLS__WATCH": "false",
        "APEXBRIDGE_MODEL__BASE_URL": server.base_url,
        "APEXBRIDGE_MODEL__NAME": model,
    }
    async with Runtime.open(load(project=home, environment=environment), lives=lives) as runtime:
        yield runtime


def _installed(home: Path) -> Path:
    return home / ".local/share/apexbridge/skills"


def _zip(folder: Path, name: str = "billing") -> Path:
    text = skill_md(name, "Makes bills from orders.")
    return make_zip(folder / f"{name}.zip", {f"{name}/SKILL.md": text})


async def _until(condition: Callable[[], Awaitable[bool]]) -> None:
    """Poll a condition that a background task brings about."""
    with anyio.fail_after(20):
        while not await condition():
            await anyio.sleep(0.01)


async def _has_tags(runtime: Runtime) -> bool:
    hits = (await runtime.search("开发票")).hits
    return bool(hits) and "发票" in hits[0].parts.words


async def _is_idle(runtime: Runtime, server: ScriptedServer, requests: int) -> bool:
    """Say whether so many requests were sent, and the tagger waits for the next change."""
    await anyio.sleep(0.05)
    return len(server.requests) >= requests


async def test_an_install_does_not_wait_for_a_hanging_model_and_its_tags_arrive_later(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(model_tags, "_TIMEOUT_SECONDS", 60)
    async with ScriptedServer([HANG, TAGS]) as server, _open(home, server) as runtime:
        await runtime.search("warm up")
        with anyio.fail_after(5):  # far less than the timeout of the model
            done = await runtime.manager.install(_zip(tmp_path))
            assert (await runtime.search("bills from orders")).hits[0].name == "billing"
        assert done.index_error is None
        assert not await _has_tags(runtime)
    monkeypatch.setattr(model_tags, "_TIMEOUT_SECONDS", 0.05)
    async with ScriptedServer([HANG, HANG, TAGS]) as server, _open(home, server) as runtime:
        await _until(lambda: _has_tags(runtime))
        assert len(server.requests) == 3


async def test_a_search_of_a_one_shot_command_sends_no_request(home: Path) -> None:
    for number in range(9):
        make_skill(_installed(home), f"skill-{number}", description=f"Does task {number}.")
    async with ScriptedServer([PROSE] * 20) as server:
        for _ in range(2):
            async with _open(home, server, lives=False) as runtime:
                assert (await runtime.search("task 3")).hits
        assert server.requests == []


async def test_a_chat_of_a_one_shot_command_sends_its_own_request_only(home: Path) -> None:
    for number in range(9):
        make_skill(_installed(home), f"skill-{number}", description=f"Does task {number}.")
    async with ScriptedServer([[ModelDelta(text="Hello.")]]) as server:
        async with _open(home, server, lives=False) as runtime:
            events = [event async for event in runtime.chat("hello")]
        assert events
        assert len(server.requests) == 1


async def test_a_server_sends_one_request_for_each_content_and_remembers_unusable_answers(
    home: Path,
) -> None:
    for number in range(9):
        make_skill(_installed(home), f"skill-{number}", description=f"Does task {number}.")
    async with ScriptedServer([PROSE] * 40) as server:
        async with _open(home, server) as runtime:
            await runtime.search("task 3")
            await _until(lambda: _is_idle(runtime, server, 9))
            await runtime.search("task 4")
            await runtime.index_service.sync()
            await _is_idle(runtime, server, 9)
        assert len(server.requests) == 9
        async with _open(home, server) as runtime:  # a restart repeats nothing
            await runtime.search("task 3")
            await _is_idle(runtime, server, 9)
        assert len(server.requests) == 9
        (_installed(home) / "skill-3/notes.md").write_text("more", encoding="utf-8")
        async with _open(home, server) as runtime:  # only what changed is sent again
            await runtime.search("task 3")
            await _until(lambda: _is_idle(runtime, server, 10))
        assert len(server.requests) == 10
        async with _open(home, server, model="another") as runtime:
            await runtime.search("task 3")
            await _until(lambda: _is_idle(runtime, server, 19))
        assert len(server.requests) == 19


async def test_stored_tags_are_found_and_never_requested_again(home: Path, tmp_path: Path) -> None:
    root = make_skill(_installed(home), "billing", description="Makes bills from orders.")
    before = tree.fingerprint(root)
    async with ScriptedServer([TAGS]) as server:
        async with _open(home, server) as runtime:
            await _until(lambda: _has_tags(runtime))
        async with _open(home, server, lives=False) as runtime:
            assert await _has_tags(runtime)
            assert "billing" in (await runtime.index_service.sync()).kept
            assert (await runtime.index_service.status()).is_sound
        assert len(server.requests) == 1
    assert tree.fingerprint(root) == before
    stored = [path.name for path in (home / ".local/share/apexbridge/tags").glob("*.json")]
    assert len(stored) == 1


async def test_preview_save_and_enable_wait_for_no_model(home: Path, tmp_path: Path) -> None:
    async with ScriptedServer([PROSE] * 9) as server, _open(home, server) as runtime:
        await runtime.search("warm up")
        await runtime.manager.install(_zip(tmp_path))
        await _until(lambda: _is_idle(runtime, server, 1))
        await preview_description(runtime, "billing", "Writes invoices.")
        await runtime.manager.set_enabled("billing", enabled=False)
        await runtime.manager.set_enabled("billing", enabled=True)
        await _is_idle(runtime, server, 1)
        assert len(server.requests) == 1
        await runtime.manager.edit_description("billing", "Writes invoices.")
        await _until(lambda: _is_idle(runtime, server, 2))
        assert len(server.requests) == 2


async def test_an_explicit_round_tags_all_and_stops_at_an_unavailable_model(home: Path) -> None:
    for name in ("a", "b", "c"):
        make_skill(_installed(home), name, description=f"Does {name}.")
    async with ScriptedServer([TAGS, HANG, PROSE, TAGS]) as server:
        async with _open(home, server, lives=False) as runtime:
            first = await runtime.index_service.tag_pending()
            assert first is not None
            assert (first.tagged, first.left) == (("a",), 2)
            assert first.error is not None
            second = await runtime.index_service.tag_pending()
            assert second is not None
            assert (second.tagged, second.left, second.error) == (("c",), 1, None)
        assert len(server.requests) == 4


async def test_a_rejected_request_is_not_repeated_and_does_not_stop_the_others(home: Path) -> None:
    for name in ("a", "billing"):
        make_skill(_installed(home), name, description=f"Does {name}.")
    rejected = RawResponse(status=400, body=b'{"error": {"message": "content policy"}}')
    async with ScriptedServer([rejected, TAGS]) as server, _open(home, server) as runtime:
        await _until(lambda: _has_tags(runtime))
        await _is_idle(runtime, server, 2)
        assert len(server.requests) == 2


@pytest.mark.parametrize("status", [401, 404])
async def test_a_wrong_key_or_model_name_is_no_failure_of_the_content(
    home: Path, status: int
) -> None:
    make_skill(_installed(home), "billing", description="Makes bills from orders.")
    rejected = RawResponse(status=status, body=b'{"error": {"message": "no"}}')
    async with ScriptedServer([rejected, TAGS]) as server, _open(home, server) as runtime:
        await _until(lambda: _has_tags(runtime))  # soon, and not after the backoff of an hour
        assert len(server.requests) == 2


async def test_a_server_is_ready_while_its_model_hangs(home: Path) -> None:
    make_skill(_installed(home), "billing", description="Makes bills from orders.")
    async with ScriptedServer([HANG] * 3) as model:
        variables = {
            "APEXBRIDGE_MODEL__BASE_URL": model.base_url,
            "APEXBRIDGE_MODEL__NAME": "scripted",
        }
        async with server_process(home, **variables) as server:
            with anyio.fail_after(20):
                while (await send_request(server.url, "/readyz")).status != 200:
                    await anyio.sleep(0.02)
                while not model.requests:
                    await anyio.sleep(0.02)
            assert len(model.requests) == 1


async def test_without_a_model_there_is_nothing_to_tag(home: Path) -> None:
    environment = {"HOME": str(home), "APEXBRIDGE_INDEX__EMBEDDER": "hash"}
    async with Runtime.open(load(project=home, environment=environment), lives=True) as runtime:
        await runtime.search("anything")
        assert await runtime.index_service.tag_pending() is None


def test_failures_survive_a_restart_for_the_same_model_only(tmp_path: Path) -> None:
    path = tmp_path / "tags/failures.json"
    failures = TagFailures(path, "one")
    failures.add("a")
    failures.add("b")
    first = failures.retry_at("b")
    failures.add("b")
    assert failures.retry_at("b") > first
    again = TagFailures(path, "one")
    assert again.retry_at("a") == failures.retry_at("a") > 0
    assert TagFailures(path, "two").retry_at("a") == 0
    path.write_bytes(b"{")
    assert TagFailures(path, "one").retry_at("a") == 0


def test_the_oldest_failures_are_forgotten_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(background_tags, "_MAX_FAILURES", 2)
    failures = TagFailures(tmp_path / "failures.json", "one")
    for content in ("a", "b", "b", "c", "c"):
        failures.add(content)
    assert failures.retry_at("a") == 0
    assert failures.retry_at("b") > 0 < failures.retry_at("c")


def test_failures_that_cannot_be_written_are_kept_in_memory(tmp_path: Path) -> None:
    (tmp_path / "tags").touch()
    failures = TagFailures(tmp_path / "tags/failures.json", "one")
    failures.add("a")
    assert failures.retry_at("a") > 0


def test_backoff_doubles_up_to_a_limit_with_jitter() -> None:
    for attempt, longest in ((0, 1.0), (1, 2.0), (3, 8.0), (99, 60.0)):
        delays = {backoff_seconds(attempt, 1.0, 60.0) for _ in range(50)}
        assert all(longest / 2 <= delay <= longest for delay in delays)
        assert len(delays) > 1


async def test_a_file_system_check_finds_tagged_rows_in_order(home: Path) -> None:
    make_skill(_installed(home), "billing", description="Makes bills from orders.")
    async with ScriptedServer([TAGS]) as server:
        async with _open(home, server) as runtime:
            await _until(lambda: _has_tags(runtime))
            config = runtime.config
        assert (await check_data_dir(config)).violations == ()
