"""Resource limits: memory, output floods, fork bombs, daemons. Attacks 23 to 37."""

import json
import os
from dataclasses import replace
from pathlib import Path

import anyio
import pytest

from apexbridge.sandbox.base import MIB, SandboxLimits
from apexbridge.sandbox.cgroup import Cgroups
from apexbridge.sandbox.workspace import Workspaces
from tests.hostile.attack_setup import Field
from tests.hostile.attacks import row

pytestmark = [pytest.mark.anyio, pytest.mark.unmeasured]

HAS_PROCESS_LIMIT = os.getuid() != 0 or Cgroups.detect() is not None
"""Root is exempt from the limit of processes unless a control group counts them."""


@row(23, 24)
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
    # An ordinary user's processes are counted together: others come and go meanwhile.
    assert 5 <= int(result.stdout) <= (45 if os.getuid() == 0 else 150)
    await ground.is_left_by_all()


@row(25)
@pytest.mark.promise("X07")
async def test_25_a_memory_hog_gets_no_more(ground: Field) -> None:
    limits = SandboxLimits(wall_seconds=30, memory_bytes=200 * MIB)
    result = await ground.play(
        "try:\n    b = bytearray(400_000_000)\nexcept MemoryError:\n    print('no')\n", limits
    )
    assert result.stdout == b"no\n" or result.exit_code == 137


@row(26)
@pytest.mark.parametrize(
    "hog",
    [
        'bytearray(b"x" * 60_000_000)',
        'os.write(os.memfd_create("hog"), b"x" * 60_000_000)',
        '(m := __import__("mmap").mmap(-1, 60_000_000)).write(b"x" * 60_000_000), m',
    ],
    ids=["private", "memory file", "shared"],
)
async def test_26_many_processes_share_one_limit(ground: Field, hog: str) -> None:
    if Cgroups.detect() is None:
        pytest.skip("without control groups memory is bounded for each process alone")
    source = f"""
reader, writer = os.pipe()
os.set_blocking(reader, False)
for _ in range(6):
    if os.fork() == 0:
        hog = {hog}
        os.write(writer, b"x")
        time.sleep(60)
        os._exit(0)
full = dead = 0
while full < 6 and not dead:
    try:
        full += len(os.read(reader, 6))
    except BlockingIOError:
        time.sleep(0.01)
    dead = os.waitpid(-1, os.WNOHANG)[0]
print("all" if not dead else "some", flush=True)
"""
    limits = SandboxLimits(wall_seconds=30, memory_bytes=150 * MIB)
    result = await ground.play(source, limits)
    assert result.exit_code == 137 or result.stdout == b"some\n"


@row(27, 28)
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


@row(29)
@pytest.mark.promise("X07")
async def test_29_many_files_hit_the_limit_of_the_workspace(ground: Field) -> None:
    limits = SandboxLimits(wall_seconds=30, workspace_bytes=20 * MIB)
    with anyio.fail_after(20):
        result = await ground.play(
            """
for n in range(10_000):
    os.makedirs(str(n % 7), exist_ok=True)
    with open(f"{n % 7}/{n}", "wb") as file:
        file.write(bytes(100_000))
time.sleep(60)
""",
            limits,
        )
    assert (result.outcome, result.exit_code, result.error) == (
        "workspace_limit",
        137,
        "workspace_limit",
    )
    await ground.is_left_by_all()


@row(30)
@pytest.mark.promise("X07")
@pytest.mark.parametrize("hidden", ["", "os.chmod('d', 0o300)"], ids=["plain", "unreadable"])
async def test_30_so_do_many_names(ground: Field, hidden: str) -> None:
    limits = SandboxLimits(wall_seconds=30, workspace_files=500)
    with anyio.fail_after(20):
        result = await ground.play(
            f"os.mkdir('d')\n{hidden}\n"
            "for n in range(100_000):\n    os.symlink('x', f'd/{n}')\ntime.sleep(60)\n",
            limits,
        )
    assert result.outcome == "workspace_limit"
    await ground.is_left_by_all()


async def test_directories_nested_too_deep_exceed_the_quota(ground: Field) -> None:
    result = await ground.play("for _ in range(150):\n    os.mkdir('d')\n    os.chdir('d')\n")
    assert result.outcome == "workspace_limit"


async def test_what_is_written_at_the_last_moment_counts_too(ground: Field) -> None:
    limits = SandboxLimits(wall_seconds=30, workspace_bytes=MIB)
    result = await ground.play("write('a'); open('b', 'wb').write(bytes(3_000_000))", limits)
    assert result.outcome == "workspace_limit"


@row(31)
async def test_31_a_workspace_goes_whatever_was_left_in_it(ground: Field, tmp_path: Path) -> None:
    with Workspaces(tmp_path / "w").lease() as place:
        moved = replace(ground, workspace=place, is_metered=False)
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


@row(32, 33)
@pytest.mark.promise("X06")
async def test_32_33_daemons_die_and_a_held_pipe_blocks_nothing(ground: Field) -> None:
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
    await ground.is_left_by_all()


@row(34, 35, 36)
@pytest.mark.promise("X03", "X08")
@pytest.mark.parametrize(
    "source",
    [
        "while True: pass",
        "for n in range(1, 65):\n    try:\n        signal.signal(n, signal.SIG_IGN)\n"
        "    except (OSError, ValueError):\n        pass\ntime.sleep(60)",
        "os.kill(os.getpid(), signal.SIGSTOP)",
        "attack('stop', lambda: os.kill(os.getppid(), signal.SIGSTOP)); time.sleep(60)",
        "os.close(1); os.close(2); time.sleep(60)",
        "os.fork(); os.fork(); time.sleep(60)",
    ],
    ids=["spin", "deaf", "stopped", "parent stopped", "closed", "forked"],
)
async def test_34_36_what_takes_too_long_is_ended_whole(ground: Field, source: str) -> None:
    with anyio.fail_after(8):
        result = await ground.play(source, SandboxLimits(wall_seconds=0.7))
    assert (result.outcome, result.exit_code, result.error) == ("timeout", 124, "timeout")
    assert result.timed_out
    await ground.is_left_by_all()


@row(37)
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
    await ground.is_left_by_all()
