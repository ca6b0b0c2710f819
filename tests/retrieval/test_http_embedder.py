"""HTTP embedder: faulty servers, retries and key redaction."""

import base64
import traceback
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from typing import Any

import anyio
import numpy as np
import pytest
from aiohttp import web
from anyio.abc import SocketAttribute, SocketStream

from apexbridge.errors import EmbedderOutputError, EmbedderUnavailableError
from apexbridge.models.retry import RetryPolicy
from apexbridge.retrieval.base import Matrix
from apexbridge.retrieval.embedders.hashing import HashEmbedder
from apexbridge.retrieval.embedders.http import HttpEmbedder
from tests.retrieval.embeddings_server import Answering, answer, honest, serving, vectors

pytestmark = pytest.mark.anyio

KEY = "sk-very-secret-0123456789"
TEXTS = ["read pdf", "mail", "读取"]


@asynccontextmanager
async def _asking(answering: Answering, **settings: Any) -> AsyncGenerator[HttpEmbedder]:
    async with serving(answering) as address:
        embedder = HttpEmbedder(address, "tiny", api_key=KEY, **settings)
        try:
            yield embedder
        finally:
            await embedder.close()


async def _asked(answering: Answering, **settings: Any) -> Matrix:
    async with _asking(answering, **settings) as embedder:
        return await embedder.embed(TEXTS, kind="query")


async def _right() -> Matrix:
    return await HashEmbedder().embed(TEXTS, kind="query")


def _fixed(body: str | bytes | object, status: int = 200, **headers: str) -> Answering:
    async def answering(_: web.Request) -> web.StreamResponse:
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        if isinstance(body, str | bytes):
            return web.Response(body=body, status=status, headers=named)
        return web.json_response(body, status=status, headers=named)

    return answering


def _first_then_honest(first: Answering) -> Answering:
    calls: list[int] = []

    async def answering(request: web.Request) -> web.StreamResponse:
        calls.append(1)
        return await (first if len(calls) == 1 else honest)(request)

    return answering


@pytest.fixture
def pauses(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The backoff before each retry, without the waiting."""
    taken: list[float] = []

    async def sleep(seconds: float) -> None:
        taken.append(seconds)

    monkeypatch.setattr(anyio, "sleep", sleep)
    # The upper end of the jitter, so that the backoff is exact.
    monkeypatch.setattr(RetryPolicy, "delay", _longest_delay)
    return taken


def _longest_delay(policy: RetryPolicy, retry: int, retry_after: float) -> float:
    return max(retry_after, policy.ceiling(retry))


@pytest.mark.parametrize(
    ("status", "headers", "pause"),
    [
        (429, {"Retry_After": "3"}, 3),
        (429, {"Retry_After": "Wed, 21 Oct 2026 07:28:00 GMT"}, 1.0),
        (503, {}, 1.0),
        (408, {}, 1.0),
    ],
)
async def test_a_busy_server_is_retried(
    pauses: list[float], status: int, headers: dict[str, str], pause: float
) -> None:
    rows = await _asked(_first_then_honest(_fixed("busy", status, **headers)))
    assert np.allclose(rows, await _right())
    assert pauses == [pause]


async def test_a_retry_after_beyond_the_deadline_is_reported_and_not_waited_for(
    pauses: list[float],
) -> None:
    with pytest.raises(EmbedderUnavailableError, match="Retry-After is 3600 s") as caught:
        await _asked(_first_then_honest(_fixed("busy", 429, Retry_After="3600")))
    assert caught.value.details["retry_after"] == 3600
    assert pauses == []


async def test_a_closed_connection_is_retried(pauses: list[float]) -> None:
    async def hang_up(request: web.Request) -> web.StreamResponse:
        assert request.transport is not None
        request.transport.close()
        return web.Response()

    assert np.allclose(await _asked(_first_then_honest(hang_up)), await _right())
    assert len(pauses) == 1


async def test_a_failing_server_is_retried_twice(pauses: list[float]) -> None:
    with pytest.raises(EmbedderUnavailableError, match=r"127\.0\.0\.1 answered 500"):
        await _asked(_fixed("oh", 500))
    assert pauses == [1.0, 2.0]


async def test_an_unreachable_server_is_named(pauses: list[float]) -> None:
    async with serving() as address:
        pass
    embedder = HttpEmbedder(address, "tiny", api_key=KEY)
    with pytest.raises(EmbedderUnavailableError, match=r"127\.0\.0\.1 cannot be reached"):
        await embedder.embed(TEXTS, kind="query")
    await embedder.close()
    assert len(pauses) == 2


async def test_a_hanging_server_times_out(pauses: list[float]) -> None:
    is_left = anyio.Event()

    async def hang(_: web.Request) -> web.StreamResponse:
        await is_left.wait()
        return web.Response()

    async with _asking(hang, timeout_seconds=0.1) as embedder:
        with pytest.raises(EmbedderUnavailableError, match=r"no answer within 0\.1 s"):
            await embedder.embed(TEXTS, kind="query")
        is_left.set()
    assert pauses == []


@pytest.mark.promise("L06")
@pytest.mark.parametrize(
    ("body", "words"),
    [
        pytest.param("<html>Log in</html>", "not JSON", id="HTML"),
        pytest.param(b"\xff\xfe", "not JSON", id="not even text"),
        pytest.param("[" * 100_000, "not JSON", id="endlessly deep"),
        pytest.param({"object": "list"}, "in `data`", id="without data"),
        pytest.param({"data": [{"embedding": [None]}]}, "in `data`", id="nothing for numbers"),
        pytest.param(answer([[1, 0]]), "1 vectors for 3 texts", id="too few"),
        pytest.param(answer([[1, 0]] * 4), "4 vectors for 3 texts", id="too many"),
        pytest.param({"data": [{"embedding": [1, 0]}]}, "for 3 texts", id="too few unnumbered"),
        pytest.param(
            {"data": [{"index": 0, "embedding": [1, 0]}] * 3}, "not one for each", id="one thrice"
        ),
        pytest.param(answer([[1, 0], [0, 1], [float("nan"), 1]]), "NaN", id="NaN"),
        pytest.param(answer([[1, 0], [0, 1], [0, 0]]), "zero vector", id="zero"),
        pytest.param(answer([[1, 0], [0, 1], [1]]), "different sizes", id="ragged"),
        pytest.param(answer([[], [], []]), "0 numbers", id="empty vectors"),
        pytest.param(answer(["!", "!", "!"]), "not base64", id="not base64"),
        pytest.param(answer(["AAA=", "AAA=", "AAA="]), "not base64", id="half a number"),
    ],
)
async def test_an_answer_that_cannot_be_right_is_refused(body: object, words: str) -> None:
    with pytest.raises(EmbedderOutputError) as caught:
        await _asked(_fixed(body))
    assert words in caught.value.message


@pytest.mark.promise("L06")
async def test_vectors_of_another_size_are_refused() -> None:
    with pytest.raises(EmbedderOutputError, match="2 numbers where 64 were expected"):
        await _asked(_fixed(answer([[1, 0]] * 3)), dimensions=64)
    async with _asking(_first_then_honest(_fixed(answer([[1, 0]] * 3)))) as embedder:
        await embedder.embed(TEXTS, kind="query")
        assert embedder.dimensions == 2
        with pytest.raises(EmbedderOutputError, match="64 numbers where 2 were expected"):
            await embedder.embed(TEXTS, kind="query")


def _shuffled(rows: list[list[float]]) -> object:
    listed = [{"index": at, "embedding": row} for at, row in enumerate(rows)]
    return {"data": listed[::-1]}


def _unnumbered(rows: list[list[float]]) -> object:
    return {"data": [{"embedding": row} for row in rows]}


def _base64(rows: list[list[float]]) -> object:
    return answer([base64.b64encode(np.array(row, "<f4").tobytes()).decode() for row in rows])


def _too_long(rows: list[list[float]]) -> object:
    return answer([[7 * value for value in row] for row in rows])


@pytest.mark.parametrize("put", [_shuffled, _unnumbered, _base64, _too_long])
async def test_answers_may_be_put_in_many_ways(put: Callable[[list[list[float]]], object]) -> None:
    async def answering(request: web.Request) -> web.StreamResponse:
        return web.json_response(put(await vectors(request)))

    assert np.allclose(await _asked(answering), await _right(), atol=1e-6)


async def test_an_endless_response_is_cut_off() -> None:
    async def endless(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        while True:
            await response.write(b" " * 65536)

    with pytest.raises(EmbedderOutputError, match="more than 1835008 bytes"):
        await _asked(endless)


async def test_a_redirect_is_not_followed() -> None:
    with pytest.raises(EmbedderUnavailableError, match="answered 307: redirects are not followed"):
        await _asked(_fixed("", 307, Location="/v1/embeddings"))


async def test_a_rejection_quotes_the_server() -> None:
    with pytest.raises(EmbedderUnavailableError, match="answered 404: no such model  tiny"):
        await _asked(_fixed({"error": {"message": "no such model\n tiny"}}, 404))
    with pytest.raises(EmbedderUnavailableError, match="answered 422: too long"):
        await _asked(_fixed({"error": "too long"}, 422))
    with pytest.raises(EmbedderUnavailableError, match=r"answered 400$"):
        await _asked(_fixed("<html>", 400))


@pytest.mark.parametrize("status", [400, 401, 403, 404, 500])
@pytest.mark.parametrize("echo", [KEY, KEY[-8:], f"Bearer {KEY}"])
async def test_the_api_key_is_in_no_error_message(
    pauses: list[float], status: int, echo: str, caplog: pytest.LogCaptureFixture
) -> None:
    refusing = _fixed({"error": {"message": f"bad key {echo}"}}, status)
    async with _asking(refusing) as embedder:
        with pytest.raises(EmbedderUnavailableError) as caught:
            await embedder.embed(TEXTS, kind="query")
        written = "".join(traceback.format_exception(caught.value))
        texts = [caught.value.message, repr(caught.value), str(caught.value.details), written]
        assert str(status) in caught.value.message
        for words in (*texts, repr(embedder), embedder.id, caplog.text):
            assert KEY not in words
            assert KEY[-8:] not in words


async def test_the_key_is_not_in_anything_that_an_error_carries(pauses: list[float]) -> None:
    async def babble(stream: SocketStream) -> None:
        async with stream:
            await stream.receive()
            await stream.send(b"HTTP/1.1 what?\r\n\r\n")  # aiohttp's error shows the headers

    async with await anyio.create_tcp_listener(local_host="127.0.0.1") as listener:
        port = listener.extra(SocketAttribute.local_port)
        embedder = HttpEmbedder(f"http://127.0.0.1:{port}", "tiny", api_key=KEY)
        errors: list[BaseException | None] = []
        async with anyio.create_task_group() as group:
            group.start_soon(listener.serve, babble)
            with pytest.raises(EmbedderUnavailableError) as caught:
                await embedder.embed(TEXTS, kind="query")
            errors.append(caught.value)
            group.cancel_scope.cancel()
    await embedder.close()
    assert len(errors) == 1
    for error in errors:
        if error is not None:
            assert KEY not in repr(error) + str(error) + str(vars(error))
            errors += [error.__cause__, error.__context__]
    assert len(pauses) == 2


async def test_a_request_is_serialized_for_openai() -> None:
    seen: list[tuple[str | None, dict[str, Any]]] = []

    async def noting(request: web.Request) -> web.StreamResponse:
        seen.append((request.headers.get("Authorization"), await request.json()))
        return await honest(request)

    async with _asking(
        noting, dimensions=32, batch=2, query_prefix="query: ", document_prefix="passage: "
    ) as embedder:
        assert embedder.dimensions == 32
        assert (await embedder.embed(["a", "b\ud800\0", ""], kind="query")).shape == (3, 32)
        await embedder.embed(["a"], kind="document")
    asked = {"model": "tiny", "encoding_format": "float", "dimensions": 32}
    assert seen == [
        (f"Bearer {KEY}", {**asked, "input": ["query: a", "query: b\ufffd "]}),
        (f"Bearer {KEY}", {**asked, "input": ["query: "]}),
        (f"Bearer {KEY}", {**asked, "input": ["passage: a"]}),
    ]


async def test_an_empty_text_is_sent_as_a_blank_and_no_key_sends_no_header() -> None:
    seen: list[tuple[str | None, list[str]]] = []

    async def noting(request: web.Request) -> web.StreamResponse:
        asked: dict[str, Any] = await request.json()
        seen.append((request.headers.get("Authorization"), asked["input"]))
        return await honest(request)

    async with serving(noting) as address:
        embedder = HttpEmbedder(f"{address}/", "tiny")
        await embedder.embed([""], kind="query")
        await embedder.close()
    assert seen == [(None, [" "])]


def test_the_id_names_all_that_changes_the_vectors() -> None:
    address = "https://user:word@models.example:8443/v1"
    plain = HttpEmbedder(address, "m", api_key=KEY)
    assert plain.id == "http:models.example:m"
    assert HttpEmbedder(address, "m", dimensions=256).id == "http:models.example:m:256"
    prefixed = {HttpEmbedder(address, "m", query_prefix=prefix).id for prefix in ("", "q: ", "Q: ")}
    assert len(prefixed) == 3


@pytest.mark.parametrize(
    ("address", "key", "words"),
    [
        ("models.example/v1", KEY, "the base URL is not"),
        ("file:///etc/passwd", KEY, "the base URL is not"),
        ("http://[::1", KEY, "the base URL is not"),
        ("http://127.0.0.1:1", "bad\nkey", "its key has characters"),
    ],
)
async def test_invalid_settings_are_reported(address: str, key: str, words: str) -> None:
    with pytest.raises(EmbedderUnavailableError, match=words) as caught:
        await HttpEmbedder(address, "tiny", api_key=key).embed(["a"], kind="query")
    assert key not in caught.value.message
