"""Process lifecycle: stdin, output, exit codes, a killed server. Attacks 53 to 65."""

import os
import subprocess
import sys
import threading
import uuid
from pathlib import Path

import anyio
import pytest

from apexbridge.sandbox.base import MIB, Access, ExecRequest, SandboxLimits
from apexbridge.sandbox.child_process import RunningProcess
from apexbridge.sandbox.execution import Backend, run_process, to_execution_result
from tests.hostile.attack_setup import Field, gone, left
from tests.hostile.attacks import row

pytestmark = [pytest.mark.anyio, pytest.mark.unmeasured]


@row(53)
@pytest.mark.promise("X08")
async def test_53_stdin_is_empty_or_what_was_given(ground: Field) -> None:
    assert (await ground.play("print(repr(sys.stdin.read()))")).stdout == b"''\n"
    given = await ground.play("print(len(sys.stdin.read()))", stdin=b"x" * 300_000)
    assert given.stdout == b"300000\n"
    unread = await ground.play("print('never read it')", stdin=b"x" * 300_000)
    assert unread.outcome == "ok"


@pytest.mark.promise("X08")
async def test_there_is_no_terminal_to_ask(ground: Field) -> None:
    verdicts = await ground.verdicts("""
import getpass, warnings
warnings.simplefilter("ignore")
attack("tty", lambda: open("/dev/tty").close())
attack("input", input)
attack("getpass", lambda: getpass.getpass("Password: ", stream=sys.stderr))
verdicts["isatty"] = str([os.isatty(number) for number in (0, 1, 2)])
""")
    assert verdicts.pop("tty") in {"ENOENT", "ENXIO", "EACCES"}
    assert verdicts == {"input": "EOFError", "getpass": "EOFError", "isatty": str([False] * 3)}


@row(54)
@pytest.mark.promise("X05")
@pytest.mark.parametrize("stream", [1, 2])
async def test_54_an_output_flood_is_truncated_and_marked(ground: Field, stream: int) -> None:
    limits = SandboxLimits(wall_seconds=30, output_bytes=MIB)
    with anyio.fail_after(20):
        result = await ground.play(f"while True: os.write({stream}, b'x' * 65536)", limits)
    assert (result.outcome, result.error, result.truncated) == (
        "output_limit",
        "output_limit",
        True,
    )
    output = result.stdout if stream == 1 else result.stderr
    assert output == b"x" * MIB + b"\n[TRUNCATED]\n"


@row(55)
@pytest.mark.promise("X05")
async def test_55_exactly_the_cap_is_not_cut(ground: Field) -> None:
    limits = SandboxLimits(wall_seconds=30, output_bytes=MIB)
    result = await ground.play(f"sys.stdout.write('x' * {MIB})", limits)
    assert (result.outcome, result.truncated, len(result.stdout)) == ("ok", False, MIB)


@row(56)
@pytest.mark.promise("X13")
async def test_56_bytes_come_back_as_they_are(ground: Field) -> None:
    result = await ground.play("os.write(1, bytes(range(256)))")
    assert result.stdout == bytes(range(256))


@row(57, 58)
@pytest.mark.promise("X04")
async def test_57_58_exit_codes_are_the_scripts_own(ground: Field) -> None:
    closed = await ground.play("os.close(1); os._exit(3)")
    assert (closed.outcome, closed.exit_code) == ("failed", 3)
    own = await ground.play("os._exit(124)")
    assert (own.outcome, own.exit_code, own.timed_out) == ("failed", 124, False)


@row(59)
async def test_59_death_by_a_signal_is_128_and_its_number(ground: Field) -> None:
    result = await ground.play("os.kill(os.getpid(), signal.SIGSEGV)")
    assert (result.outcome, result.exit_code) == ("killed", 139)


@row(60, 61)
@pytest.mark.promise("X12")
async def test_60_61_arguments_arrive_verbatim_or_are_refused(ground: Field) -> None:
    odd = ("--", ";rm -rf /", "a\nb", "${IFS}", "$(id)", "'\"", "é中", "\udcff", "")
    result = await ground.run(("/usr/bin/printf", "%s|", *odd))
    assert result.stdout == b"".join(os.fsencode(word) + b"|" for word in odd)
    with pytest.raises(ValueError, match="NUL"):
        await ground.run(("/bin/echo", "a\0b"))
    huge = await ground.run(("/bin/echo", "x" * 200_000))
    assert (huge.outcome, huge.exit_code, huge.error) == ("not_started", None, "E2BIG")


@row(62)
@pytest.mark.promise("X02")
async def test_62_what_cannot_start_says_why(cold: Field) -> None:
    (cold.workspace / "plain").write_text("text", encoding="utf-8")
    bad = cold.workspace / "bad"
    bad.write_text("#!/no/such/interpreter\n", encoding="utf-8")
    bad.chmod(0o755)
    for argv, error in (
        (("no-such-program",), "ENOENT"),
        ((str(cold.workspace / "plain"),), "EACCES"),
        ((str(bad),), "ENOENT"),
    ):
        result = await cold.run(argv)
        assert (result.outcome, result.exit_code, result.error) == ("not_started", None, error)


@row(63)
@pytest.mark.promise("X02")
async def test_63_garbage_is_not_run(cold: Field) -> None:
    garbage = cold.workspace / "garbage"
    garbage.write_bytes(bytes(range(1, 200)))
    garbage.chmod(0o755)
    result = await cold.run((str(garbage),))
    if cold.backend == "bubblewrap":  # it hands what the kernel refuses to a shell, as shells do
        assert (result.outcome, result.exit_code in {2, 126, 127}) == ("failed", True)
    else:
        assert (result.outcome, result.error) == ("not_started", "ENOEXEC")


@pytest.mark.promise("X14")
async def test_a_caller_that_gives_up_ends_the_run(ground: Field) -> None:
    with anyio.move_on_after(0.5) as scope:
        await ground.play("os.fork(); time.sleep(60)")
    assert scope.cancelled_caught
    await ground.is_left_by_all()


SERVER = """
import anyio, sys
from pathlib import Path
from apexbridge.sandbox.base import *
from apexbridge.sandbox.backends import BubblewrapSandbox
from apexbridge.sandbox.backends import LandlockSandbox
from apexbridge.sandbox.launcher import Launcher
kind, place, mark = sys.argv[1], Path(sys.argv[2]), sys.argv[3]
sandbox = (BubblewrapSandbox if kind == "bubblewrap" else LandlockSandbox)(Launcher())
script = "(setsid sleep $0 &) ; echo up; sleep $0"
request = ExecRequest(argv=("/bin/sh", "-c", script, mark), cwd=place,
                      env={"PATH": "/usr/bin:/bin"}, access=Access(write=(place,)),
                      on_output=lambda _, piece: print("up", flush=True))
print("ready", flush=True)
anyio.run(sandbox.run, request)
"""


async def _kill_server(cold: Field, place: Path, awaited: bytes, delay: float = 0) -> str:
    """Start a server that runs something long, wait for its word, kill it; the thing's mark."""
    mark = f"{uuid.uuid4().int % 10**12:012}.5"  # a number of seconds that only this server waits
    words = (sys.executable, "-c", SERVER, cold.backend, str(place), mark)
    with subprocess.Popen(words, stdout=subprocess.PIPE) as server:
        assert server.stdout is not None
        while server.stdout.readline().strip() != awaited:
            pass
        await anyio.sleep(delay)
        if awaited == b"up":
            assert len(left(mark)) > 1
        server.kill()
    return mark


@row(64)
async def test_64_a_killed_server_leaves_nothing_running(cold: Field, tmp_path: Path) -> None:
    mark = await _kill_server(cold, tmp_path, b"up")
    with anyio.fail_after(1):  # the promise; about a hundredth of a second was measured
        await gone(mark)


@row(64)
async def test_64_nor_does_one_that_is_killed_while_a_run_starts(
    cold: Field, tmp_path: Path
) -> None:
    for delay in (0, 0.01, 0.03, 0.04, 0.05, 0.06, 0.08):
        mark = await _kill_server(cold, tmp_path, b"ready", delay)
        await gone(mark)


@row(65)
async def test_65_a_run_does_not_end_with_the_thread_that_started_it(cold: Field) -> None:
    backend = cold.sandbox
    assert isinstance(backend, Backend)
    request = ExecRequest(
        argv=("/bin/sh", "-c", "sleep 0.5; echo still here"),
        cwd=cold.workspace,
        env={"PATH": "/usr/bin:/bin"},
        access=Access(write=(cold.workspace,)),
    )
    started = list[RunningProcess]()
    thread = threading.Thread(
        target=lambda: started.append(backend.start(request, has_stdin=False))
    )
    thread.start()
    thread.join()
    result = to_execution_result(await run_process(started.pop, request), backend.name)
    assert (result.outcome, result.stdout) == ("ok", b"still here\n")
