"""Hogs, floods, daemons and the end of things, on every backend that works here."""

import json
import os
import subprocess
import sys
import uuid
from pathlib import Path

import anyio
import pytest

from apexbridge.sandbox.base import MIB, SandboxLimits
from apexbridge.sandbox.cgroup import Cgroups
from apexbridge.sandbox.workspace import Workspaces
from tests.hostile.sandbox_field import Field

pytestmark = pytest.mark.anyio

HAS_PROCESS_LIMIT = os.getuid() != 0 or Cgroups.detect() is not None
"""Root is exempt from the limit of processes unless a control group counts them."""


def _left(mark: str) -> list[str]:
    """Processes whose command line holds the mark."""
    found = list[str]()
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal() and int(entry.name) != os.getpid():
            try:
                words = (entry / "cmdline").read_bytes()
            except OSError:
                continue
            if mark.encode() in words:
                found.append(entry.name)
    return found


async def _gone(mark: str) -> None:
    with anyio.fail_after(5):
        while _left(mark):
            await anyio.sleep(0.01)


@pytest.mark.promise("X07")
@pytest.mark.parametrize("kind", ["processes", "threads"])
async def test_23_24_bombs_hit_their_limit_and_nothing_is_left(ground: Field, kind: str) -> None:
    if not HAS_PROCESS_LIMIT:
        pytest.skip("root without control groups: no limit of processes can be had")
    source = """
made = 0
try:
    while made < 2000:
        if KIND == "threads":
            threading.Thread(target=time.sleep, args=(30,), daemon=True).start()
        elif os.fork() == 0:
            time.sleep(30)
            os._exit(0)
        made += 1
except (OSError, RuntimeError):
    pass
print(made, flush=True)
os._exit(0)
"""
    limits = SandboxLimits(wall_seconds=30, processes=40)
    result = await ground.play(f"KIND = {kind!r}\n" + source, limits)
    assert 5 <= int(result.stdout) <= 45
    await _gone(str(ground.workspace))


@pytest.mark.promise("X07")
async def test_25_a_memory_hog_gets_no_more(ground: Field) -> None:
    limits = SandboxLimits(wall_seconds=30, memory_bytes=200 * MIB)
    result = await ground.play(
        "try:\n    b = bytearray(400_000_000)\nexcept MemoryError:\n    print('no')\n", limits
    )
    assert result.stdout == b"no\n" or result.exit_code == 137


async def test_26_many_processes_share_one_limit(ground: Field) -> None:
    if Cgroups.detect() is None:
        pytest.skip("without control groups memory is bounded for each process alone")
    source = """
kinds = []
for _ in range(6):
    child = os.fork()
    if child == 0:
        hog = bytearray(b"x" * 60_000_000)
        time.sleep(1)
        os._exit(0)
    kinds.append(child)
print(sum(os.waitpid(child, 0)[1] == 0 for child in kinds))
"""
    limits = SandboxLimits(wall_seconds=30, memory_bytes=150 * MIB)
    result = await ground.play(source, limits)
    assert result.exit_code == 137 or int(result.stdout) < 6


async def test_27_28_files_and_temporary_space_are_bounded(ground: Field) -> None:
    limits = SandboxLimits(wall_seconds=30, file_bytes=5 * MIB, temporary_bytes=4 * MIB)
    result = await ground.play(
        """
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
def fill(path):
    with open(path, "wb") as file:
        for _ in range(100):
            file.write(bytes(1_000_000))
            file.flush()
attack("big", lambda: fill("big"))
attack("tmp", lambda: [fill(f"/tmp/{n}") for n in range(9)])
attack("shm", lambda: [fill(f"/dev/shm/{n}") for n in range(9)])
report()
""",
        limits,
    )
    verdicts = json.loads(result.stdout)
    assert verdicts["big"] == "EFBIG"
    assert {verdicts["tmp"], verdicts["shm"]} <= {"ENOSPC", "EFBIG", "EACCES"}


async def test_31_a_workspace_goes_whatever_was_left_in_it(ground: Field, tmp_path: Path) -> None:
    with Workspaces(tmp_path / "w").lend() as place:
        moved = Field(
            sandbox=ground.sandbox, skill=ground.skill, workspace=place, facts=ground.facts
        )
        result = await moved.play(
            """
for _ in range(1500):
    os.mkdir("d")
    os.chdir("d")
open(b"odd\\n\\xff", "wb").close()
os.symlink("/", "link")
os.chdir(WORK)
os.chmod("d", 0)
print("made")
""".replace("WORK", repr(str(place)))
        )
        assert result.stdout == b"made\n"
    assert not place.exists()


@pytest.mark.promise("X06")
async def test_32_33_daemons_die_and_a_held_pipe_holds_nobody(ground: Field) -> None:
    source = """
if os.fork() == 0:
    os.setsid()
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    if os.fork() == 0:
        time.sleep(60)
    os._exit(0)
print("parent done", flush=True)
"""
    with anyio.fail_after(8):
        result = await ground.play(source)
    assert (result.outcome, result.stdout) == ("ok", b"parent done\n")
    await _gone(str(ground.workspace))


@pytest.mark.promise("X03", "X08")
@pytest.mark.parametrize(
    "source",
    [
        "while True: pass",
        "for n in range(1, 65):\n    try:\n        signal.signal(n, signal.SIG_IGN)\n"
        "    except (OSError, ValueError):\n        pass\ntime.sleep(60)",
        "os.kill(os.getpid(), signal.SIGSTOP)",
        "os.close(1); os.close(2); time.sleep(60)",
        "os.fork(); os.fork(); time.sleep(60)",
    ],
    ids=["spin", "deaf", "stopped", "closed", "forked"],
)
async def test_34_36_what_takes_too_long_is_ended_whole(ground: Field, source: str) -> None:
    with anyio.fail_after(8):
        result = await ground.play(source, SandboxLimits(wall_seconds=0.7))
    assert (result.outcome, result.exit_code, result.error) == ("timeout", 124, "timeout")
    assert result.timed_out
    await _gone(str(ground.workspace))


async def test_37_zombies_and_hoppers_are_reaped(ground: Field) -> None:
    result = await ground.play("""
for _ in range(50):
    if os.fork() == 0:
        os._exit(0)
print("ok", flush=True)
for _ in range(30):
    if os.fork():
        os._exit(0)
""")
    assert result.stdout == b"ok\n"
    await _gone(str(ground.workspace))


@pytest.mark.promise("X08")
async def test_53_stdin_is_empty_or_what_was_given(ground: Field) -> None:
    assert (await ground.play("print(repr(sys.stdin.read()))")).stdout == b"''\n"
    given = await ground.play("print(len(sys.stdin.read()))", stdin=b"x" * 300_000)
    assert given.stdout == b"300000\n"
    unread = await ground.play("print('never read it')", stdin=b"x" * 300_000)
    assert unread.outcome == "ok"


@pytest.mark.promise("X05")
@pytest.mark.parametrize("stream", [1, 2])
async def test_54_a_flood_is_cut_at_the_cap_and_told(ground: Field, stream: int) -> None:
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


@pytest.mark.promise("X05")
async def test_55_exactly_the_cap_is_not_cut(ground: Field) -> None:
    limits = SandboxLimits(wall_seconds=30, output_bytes=MIB)
    result = await ground.play(f"sys.stdout.write('x' * {MIB})", limits)
    assert (result.outcome, result.truncated, len(result.stdout)) == ("ok", False, MIB)


@pytest.mark.promise("X13")
async def test_56_bytes_come_back_as_they_are(ground: Field) -> None:
    result = await ground.play("os.write(1, bytes(range(256)))")
    assert result.stdout == bytes(range(256))


@pytest.mark.promise("X04")
async def test_57_58_exit_codes_are_the_scripts_own(ground: Field) -> None:
    closed = await ground.play("os.close(1); os._exit(3)")
    assert (closed.outcome, closed.exit_code) == ("failed", 3)
    own = await ground.play("os._exit(124)")
    assert (own.outcome, own.exit_code, own.timed_out) == ("failed", 124, False)


async def test_59_death_by_a_signal_is_128_and_its_number(ground: Field) -> None:
    result = await ground.play("os.kill(os.getpid(), signal.SIGSEGV)")
    assert (result.outcome, result.exit_code) == ("killed", 139)


@pytest.mark.promise("X12")
async def test_60_61_arguments_arrive_verbatim_or_are_refused(ground: Field) -> None:
    odd = ("--", ";rm -rf /", "a\nb", "${IFS}", "$(id)", "'\"", "é中", "\udcff", "")
    result = await ground.run(("/usr/bin/printf", "%s|", *odd))
    assert result.stdout == b"".join(os.fsencode(word) + b"|" for word in odd)
    with pytest.raises(ValueError, match="NUL"):
        await ground.run(("/bin/echo", "a\0b"))
    huge = await ground.run(("/bin/echo", "x" * 200_000))
    assert (huge.outcome, huge.exit_code, huge.error) == ("not_started", None, "E2BIG")


@pytest.mark.promise("X02")
async def test_62_63_what_cannot_start_says_why(ground: Field) -> None:
    (ground.workspace / "plain").write_text("text", encoding="utf-8")
    bad = ground.workspace / "bad"
    bad.write_text("#!/no/such/interpreter\n", encoding="utf-8")
    bad.chmod(0o755)
    for argv, error in (
        (("no-such-program",), "ENOENT"),
        ((str(ground.workspace / "plain"),), "EACCES"),
        ((str(bad),), "ENOENT"),
    ):
        result = await ground.run(argv)
        assert (result.outcome, result.exit_code, result.error) == ("not_started", None, error)


@pytest.mark.promise("X14")
async def test_a_caller_that_gives_up_ends_the_run(ground: Field) -> None:
    with anyio.move_on_after(0.5) as scope:
        await ground.play("os.fork(); time.sleep(60)")
    assert scope.cancelled_caught
    await _gone(str(ground.workspace))


SERVER = """
import anyio, sys
from pathlib import Path
from apexbridge.sandbox.base import *
from apexbridge.sandbox.bubblewrap import BubblewrapSandbox
from apexbridge.sandbox.landlock import LandlockSandbox
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


async def _kill_server(ground: Field, place: Path, awaited: bytes, delay: float = 0) -> str:
    """Start a server that runs something long, wait for its word, kill it; the thing's mark."""
    mark = f"{uuid.uuid4().int % 10**12:012}.5"  # a number of seconds that only this server waits
    words = (sys.executable, "-c", SERVER, ground.sandbox.name, str(place), mark)
    with subprocess.Popen(words, stdout=subprocess.PIPE) as server:
        assert server.stdout is not None
        while server.stdout.readline().strip() != awaited:
            pass
        await anyio.sleep(delay)
        if awaited == b"up":
            assert len(_left(mark)) > 1
        server.kill()
    return mark


async def test_64_a_killed_server_leaves_nothing_running(ground: Field, tmp_path: Path) -> None:
    mark = await _kill_server(ground, tmp_path, b"up")
    with anyio.fail_after(1):
        await _gone(mark)


async def test_64_nor_does_one_that_is_killed_while_a_run_starts(
    ground: Field, tmp_path: Path
) -> None:
    for delay in (0, 0.01, 0.03, 0.04, 0.05, 0.06, 0.08):
        mark = await _kill_server(ground, tmp_path, b"ready", delay)
        await _gone(mark)
