"""Isolation of files, processes, the kernel and the network. Attacks 1 to 52, 71 to 77.

Each verdict is the error the attack got; what is expected of bubblewrap stands first, then what
Landlock may answer instead.
"""

import ctypes
import os
import signal
from dataclasses import dataclass

import pytest

from apexbridge.sandbox import seccomp
from apexbridge.sandbox.backends import BubblewrapSandbox
from apexbridge.sandbox.launcher import Launcher
from apexbridge.sandbox.workspace import collect_outputs
from tests.hostile.attack_setup import Field, field
from tests.hostile.attacks import kind_of, row

pytestmark = [pytest.mark.anyio, pytest.mark.unmeasured]


@dataclass(frozen=True, slots=True)
class Deed:
    """Attacks that are all to be answered alike."""

    rows: tuple[int, ...]
    source: str
    bubblewrap: frozenset[str]
    landlock: frozenset[str]


def _deed(rows: tuple[int, ...], source: str, bubblewrap: str, landlock: str) -> Deed:
    return Deed(rows, source, frozenset(bubblewrap.split()), frozenset(landlock.split()))


DEEDS = {
    "files outside": _deed((1, 2, 3, 4), """
attack("shadow", lambda: read("/etc/shadow"))
attack("key", lambda: read(F["key"]))
attack("secret", lambda: read(F["secret"]))
attack("sibling", lambda: read(F["sibling"]))
attack("server code", lambda: read(F["server_code"]))
""", "ENOENT", "EACCES"),
    "the skill": _deed((5,), """
md = F["skill"] + "/SKILL.md"
attack("write", lambda: write(md))
attack("append", lambda: write(md, "ab"))
attack("unlink", lambda: os.unlink(md))
attack("mkdir", lambda: os.mkdir(F["skill"] + "/d"))
attack("rename", lambda: os.rename(F["skill"], F["skill"] + "2"))
attack("truncate", lambda: os.truncate(md, 0))
""", "EROFS", "EACCES"),
    "replacing the skill": _deed((5,), """
md = F["skill"] + "/SKILL.md"
attack("replace", lambda: (write(F["workspace"] + "/n"), os.replace(F["workspace"] + "/n", md)))
""", "EXDEV", "EACCES"),
    "modes and times of the skill": _deed((6,), """
md = F["skill"] + "/SKILL.md"
attack("chmod", lambda: os.chmod(md, 0o777))
attack("utime", lambda: os.utime(md, (1, 1)))
attack("setxattr", lambda: os.setxattr(md, "user.x", b"1"))
""", "EROFS", "EROFS DONE EPERM EACCES ENOTSUP EOPNOTSUPP"),
    "writing elsewhere": _deed((7,), """
for place in ("/usr", "/etc", "/var/tmp", "/", F["outside"], "/usr/bin", F["outside"] + "/home"):
    attack(place, lambda: write(os.path.join(place, "made-by-attack")))
""", "EROFS ENOENT", "EACCES"),
    "through links": _deed((8,), """
os.symlink(F["secret"], "l")
attack("through a link", lambda: read("l"))
attack("write through a link", lambda: write("l"))
attack("up and out", lambda: read("../secret"))
""", "ENOENT EROFS", "EACCES"),
    "hard links": _deed((10,), """
attack("skill", lambda: os.link(F["skill"] + "/SKILL.md", F["workspace"] + "/h"))
attack("passwd", lambda: os.link("/etc/passwd", F["workspace"] + "/p"))
""", "EXDEV EPERM ENOENT", "EXDEV EPERM EACCES"),
    "by way of /proc": _deed((11,), """
attack("root", lambda: read(f"/proc/{F['pid']}/root{F['secret']}"))
attack("cwd", lambda: os.listdir(f"/proc/{F['pid']}/cwd"))
""", "ENOENT", "EACCES"),
    "programs": _deed((13,), """
attack("own", lambda: write("/proc/self/exe", "r+b"))
attack("python", lambda: write(sys.executable, "r+b"))
attack("another", lambda: write("/usr/bin/env", "r+b"))
""", "EROFS ETXTBSY EACCES", "EACCES ETXTBSY"),
    "making devices": _deed((14,), """
attack("block", lambda: os.mknod("dev", 0o60666, os.makedev(8, 0)))
attack("character", lambda: os.mknod("dev2", 0o20666, os.makedev(1, 1)))
""", "EPERM", "EPERM EACCES"),
    "devices": _deed((15,), """
for name in ("mem", "kmsg", "kvm", "vda", "fuse", "loop0", "net/tun", "vsock", "vhost-vsock",
             "tty"):
    attack(name, lambda: read("/dev/" + name))
""", "ENOENT ENXIO", "EACCES ENOENT"),
    "the kernel's settings": _deed((17,), """
def knob(path):  # writes the current value back: harmless if it succeeds
    with open(path, "r+b") as file:
        was = file.read()
        file.seek(0)
        file.write(was)
for name in ("kernel/core_pattern", "kernel/hostname", "vm/swappiness", "fs/file-max"):
    attack(name, lambda: knob("/proc/sys/" + name))
attack("irq", lambda: knob("/proc/irq/default_smp_affinity"))
attack("sysrq", lambda: open("/proc/sysrq-trigger", "wb").close())
attack("sys", lambda: open("/sys/kernel/uevent_helper", "r+b").close())
def oom():
    with open("/proc/self/oom_score_adj", "w") as file:
        file.write("-1000")
attack("oom", oom)
attack("cgroup", lambda: open("/sys/fs/cgroup/pids/tasks", "r+b").close())
""", "EROFS ENOENT EACCES", "EACCES ENOENT"),
    "the server's memory": _deed((19,), """
for name in ("environ", "mem", "maps", "cmdline"):
    attack(name, lambda: read(f"/proc/{F['pid']}/{name}"))
attack("fd", lambda: os.listdir(f"/proc/{F['pid']}/fd"))
""", "ENOENT", "EACCES"),
    "a debugger": _deed((20,), """
attack("ptrace", lambda: call(N["ptrace"], 16, F["pid"], 0, 0))
attack("process_vm_readv", lambda: call(N["process_vm_readv"], F["pid"], 0, 0, 0, 0, 0))
attack("pidfd_getfd", lambda: call(N["pidfd_getfd"], 3, 0, 0))
""", "EPERM", "EPERM"),
    "signals": _deed((21,), """
attack("stop", lambda: os.kill(F["pid"], signal.SIGSTOP))
attack("ask", lambda: os.kill(F["pid"], 0))
""", "ESRCH", "EPERM"),
    "more than was given": _deed((22,), """
import resource
for name in ("RLIMIT_DATA", "RLIMIT_NOFILE", "RLIMIT_FSIZE", "RLIMIT_CPU", "RLIMIT_NPROC"):
    hard = resource.getrlimit(getattr(resource, name))[1]
    attack(name, lambda: resource.setrlimit(getattr(resource, name), (hard * 2, hard * 2)))
attack("fifo", lambda: os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(10)))
attack("nice", lambda: os.nice(-5))
page = ctypes.create_string_buffer(1 << 16)
attack("mlock", lambda: libc.mlock(page, 1 << 16) and (_ for _ in ()).throw(
    OSError(ctypes.get_errno(), "mlock")))
""", "ValueError EPERM ENOMEM", "ValueError EPERM ENOMEM"),
    "loopback": _deed((38,), """
attack("v4", lambda: socket.create_connection(("127.0.0.1", F["tcp"]), 1))
attack("v6", lambda: socket.create_connection(("::1", F["tcp"]), 1))
""", "ECONNREFUSED EADDRNOTAVAIL ENETUNREACH", "EAFNOSUPPORT"),
    "metadata": _deed((39,), """
attack("metadata", lambda: socket.create_connection(("169.254.169.254", 80), 1))
""", "ENETUNREACH EACCES", "EAFNOSUPPORT"),
    "names": _deed((41,), """
attack("dns", lambda: socket.getaddrinfo("example.org", 80))
""", "?", "?"),
    "unix sockets": _deed((42, 43), """
attack("unix", lambda: socket.socket(socket.AF_UNIX).connect(F["unix"]))
attack("abstract", lambda: socket.socket(socket.AF_UNIX).connect(F["abstract"]))
""", "ENOENT ECONNREFUSED", "EAFNOSUPPORT"),
    "odd sockets": _deed((44,), """
for family in (40, 16, 17, 38, 44, 31, 29, 21, 15):
    attack(str(family), lambda: socket.socket(family, socket.SOCK_DGRAM))
""", "EAFNOSUPPORT", "EAFNOSUPPORT"),
    "raw sockets": _deed((44,), """
attack("raw", lambda: socket.socket(socket.AF_INET, socket.SOCK_RAW, 1))
""", "EPERM", "EAFNOSUPPORT"),
    "namespaces": _deed((46,), """
attack("unshare", lambda: call(N["unshare"], 0x10000000))
attack("clone", lambda: call(N["clone"], 0x10000000 | 17, 0, 0, 0, 0))
attack("clone3", lambda: call(N["clone3"], 0, 0))
attack("setns", lambda: call(N["setns"], 0, 0))
""", "EPERM ENOSYS", "EPERM ENOSYS"),
    "mounts": _deed((47,), """
for name in ("mount", "umount2", "chroot", "pivot_root", "open_tree", "fsopen", "move_mount",
             "mount_setattr"):
    attack(name, lambda: call(N[name], 0, 0, 0, 0, 0))
""", "EPERM", "EPERM"),
    "becoming another": _deed((48,), """
attack("setuid", lambda: os.setuid(0 if os.getuid() else 65534))
attack("setgroups", lambda: os.setgroups([0]))
""", "EPERM EINVAL", "EPERM EINVAL"),
    "kernel interfaces": _deed((49,), """
for name in ("io_uring_setup", "keyctl", "add_key", "bpf", "perf_event_open", "userfaultfd",
             "kexec_load", "init_module", "finit_module", "open_by_handle_at", "swapon", "reboot"):
    attack(name, lambda: call(N[name], 0, 0, 0, 0, 0))
""", "EPERM", "EPERM"),
    "terminals": _deed((51,), """
import fcntl
attack("TIOCSTI", lambda: fcntl.ioctl(0, 0x5412, b"x"))
attack("TIOCLINUX", lambda: fcntl.ioctl(0, 0x541C, b"x"))
""", "EPERM", "EPERM"),
    "leases": _deed((72,), """
import fcntl
md, folder = open(F["skill"] + "/SKILL.md"), os.open(F["skill"], os.O_RDONLY)
write("own")
own = open("own", "r+b")
attack("on the skill", lambda: fcntl.fcntl(md, fcntl.F_SETLEASE, fcntl.F_RDLCK))
attack("on its own", lambda: fcntl.fcntl(own, fcntl.F_SETLEASE, fcntl.F_WRLCK))
attack("by high bits", lambda: call(N["fcntl"], own.fileno(), 1 << 32 | 1024, 1))
attack("on a folder", lambda: fcntl.fcntl(folder, fcntl.F_NOTIFY, fcntl.DN_CREATE))
""", "EPERM", "EPERM"),
    "requests of file systems": _deed((73,), """
import fcntl, struct
write("own")
own = open("own", "r+b")
space = struct.pack("@hhqqiI4i", 0, 0, 0, 32 << 20, 0, 0, 0, 0, 0, 0)
for name, number in (("RESVSP", 40), ("RESVSP64", 42), ("ZERO_RANGE", 57)):
    attack(name, lambda: fcntl.ioctl(own, 0x40305800 | number, space))
attack("by high bits", lambda: call(N["ioctl"], own.fileno(), 1 << 32 | 0x4030582A, id(space) + 32))
attack("project id", lambda: fcntl.ioctl(own, 0x401C5820, struct.pack("=5I8x", 0, 0, 0, 77, 0)))
attack("flags", lambda: fcntl.ioctl(own, 0x40086602, struct.pack("=q", 0x40)))
attack("project id, newer", lambda: call(N["file_setattr"], own.fileno(), 0, 0, 0, 0))
""", "ENOTTY ENOSYS", "ENOTTY ENOSYS"),
    "calls of newer kernels": _deed((76,), """
import struct
name = ctypes.create_string_buffer(b"made")
how = ctypes.create_string_buffer(struct.pack("=3Q", os.O_CREAT | os.O_WRONLY, 0o4755, 0))
where, what = ctypes.addressof(name), ctypes.addressof(how)
attack("openat2", lambda: call(N["openat2"], -100, where, what, 24))
for name in ("statmount", "listmount", "listns", "lsm_list_modules", "file_getattr",
             "process_mrelease", "set_mempolicy_home_node", "fanotify_mark", "open_tree_attr"):
    attack(name, lambda: call(N[name], 0, 0, 0, 0, 0))
for number in (335 + 8, 512 + 9, 600):
    attack(str(number), lambda: call(number, 0, 0, 0, 0, 0))
""", "ENOSYS EPERM", "ENOSYS EPERM"),
    "pairs of odd sockets": _deed((77,), """
for family in (2, 10, 16, 17, 30, 38, 40):
    for kind in (socket.SOCK_STREAM, socket.SOCK_DGRAM):
        attack(f"{family} {kind}", lambda: socket.socketpair(family, kind))
""", "EAFNOSUPPORT", "EAFNOSUPPORT"),
}  # fmt: skip


@pytest.mark.promise("X09", "X10", "X11")
@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=row(*deed.rows)) for name, deed in DEEDS.items()]
)
async def test_an_attack_gets_the_answer_it_must(ground: Field, name: str) -> None:
    deed = DEEDS[name]
    verdicts = await ground.verdicts(deed.source)
    is_bubblewrap = kind_of(ground.backend) == "bubblewrap"
    expected = deed.bubblewrap if is_bubblewrap else deed.landlock
    if ground.backend.endswith("its own"):  # whose files they are is asked first
        expected = expected | {"EACCES", "EPERM"}
    assert verdicts
    assert {name: verdict for name, verdict in verdicts.items() if verdict not in expected} == {}
    assert (ground.skill / "SKILL.md").read_bytes().startswith(b"---")


@row(9)
async def test_09_planted_links_are_not_followed_by_the_server(ground: Field) -> None:
    result = await ground.play("""
os.symlink(F["secret"], "soft")
os.symlink(F["outside"], "folder")
write("own")
os.link("own", "hard")
os.mkfifo("pipe")
write("plain")
""")
    found = collect_outputs(ground.workspace, 1000)
    assert (result.outcome, dict(found.files)) == ("ok", {"plain": b"x"})
    assert set(found.left) == {"soft", "folder", "own", "hard", "pipe"}


@row(12)
async def test_12_no_descriptor_leaks_in(ground: Field) -> None:
    result = await ground.play("""
held = []
for fd in range(3, 300):
    try:
        os.fstat(fd)
        held.append(fd)
    except OSError:
        pass
print(held)
""")
    assert result.stdout == b"[]\n"


@row(16)
async def test_16_a_file_that_would_change_the_user_does_not(ground: Field) -> None:
    result = await ground.play("""
import shutil, subprocess
shutil.copy("/usr/bin/id", "id")
try:
    os.chmod("id", 0o6755)
except OSError:
    pass
uid = subprocess.run(["./id", "-u"], capture_output=True, text=True).stdout.strip()
print(uid == str(os.getuid()), libc.prctl(39, 0, 0, 0, 0), bool(os.statvfs(".").f_flag & 2))
""")
    same, no_new_privileges, no_suid = result.stdout.split()
    assert (same, no_new_privileges) == (b"True", b"1")
    assert no_suid == b"True" or kind_of(ground.backend) == "landlock"


@row(18, 48)
@pytest.mark.promise("X09")
async def test_18_48_a_clean_environment_and_no_powers(
    ground: Field, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-secret")
    result = await ground.play("""
print(json.dumps(sorted(os.environ)))
head = (ctypes.c_uint32 * 2)(0x20080522, 0)
caps = (ctypes.c_uint32 * 6)()
libc.capget(head, caps)
print(libc.prctl(39, 0, 0, 0, 0), list(caps))
""")
    environment, powers = result.stdout.decode().splitlines()
    assert set(environment.strip('[]"').split('", "')) <= {"FIELD", "LC_CTYPE", "PATH", "PWD"}
    assert powers == "1 [0, 0, 0, 0, 0, 0]"


@row(21)
async def test_21_kill_minus_one_kills_no_process_outside(ground: Field) -> None:
    hit = list[int]()
    before = signal.signal(signal.SIGUSR1, lambda number, _: hit.append(number))
    try:
        await ground.play("try:\n    os.kill(-1, signal.SIGUSR1)\nexcept OSError:\n    pass\n")
    finally:
        signal.signal(signal.SIGUSR1, before)
    assert hit == []


@row(40)
async def test_40_a_datagram_does_not_arrive(ground: Field) -> None:
    verdicts = await ground.verdicts("""
def send():
    s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    s.connect(("127.0.0.1", F["udp"]))
    s.send(b"x")
    s.settimeout(0.2)
    s.send(b"x")
    s.recv(1)
attack("udp", send)
""")
    assert verdicts["udp"] in {"ECONNREFUSED", "EAFNOSUPPORT"}


@row(45)
async def test_45_shared_memory_of_the_server_is_not_seen(ground: Field) -> None:
    key = 0x41504558
    libc = ctypes.CDLL(None)
    number = libc.shmget(key, 4096, 0o1666)
    try:
        verdicts = await ground.verdicts(f"""
def attach():
    if libc.shmget({key}, 4096, 0) < 0:
        raise OSError(ctypes.get_errno(), "shmget")
attack("shm", attach)
""")
        assert verdicts["shm"] in {"ENOENT", "EPERM"}
    finally:
        libc.shmctl(number, 0, None)


@row(50)
@pytest.mark.needs("x86_64")
async def test_50_the_other_ways_to_call_the_kernel_are_shut(ground: Field) -> None:
    assert await ground.verdicts('attack("x32", lambda: call(0x40000000 + 39))') == {
        "x32": "ENOSYS"
    }
    # int 0x80 is the call of 32-bit programs: mov eax, 20 (getpid); int 0x80; ret
    result = await ground.play("""
import mmap
code = mmap.mmap(-1, 4096, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
code.write(bytes.fromhex("b814000000cd80c3"))
place = ctypes.addressof(ctypes.c_char.from_buffer(code))
print(ctypes.CFUNCTYPE(ctypes.c_int)(place)(), flush=True)
""")
    assert (result.outcome, result.exit_code, result.stdout) == ("killed", 159, b"")


@row(52, on="bubblewrap")
@pytest.mark.needs("bubblewrap")
async def test_52_the_skill_cannot_be_remounted_even_without_the_call_filter(
    launcher: Launcher, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as without:
        without.setattr(seccomp, "SYSCALL_TABLES", {})
        backend = BubblewrapSandbox(launcher)
    with field("bubblewrap", backend) as ground:
        verdicts = await ground.verdicts("""
place = ctypes.create_string_buffer(F["skill"].encode())
attack("remount", lambda: call(N["mount"], 0, ctypes.addressof(place), 0, 0x1000 | 0x20, 0))
attack("write", lambda: write(F["skill"] + "/SKILL.md"))
""")
    assert verdicts == {"remount": "EPERM", "write": "EROFS"}


@row(71)
async def test_71_no_file_gets_a_mode_that_changes_the_user(ground: Field) -> None:
    verdicts = await ground.verdicts("""
write("own")
own = os.open("own", os.O_RDWR)
for mode in (0o4755, 0o2755, 0o6711):
    attack(f"chmod {mode:o}", lambda: os.chmod("own", mode))
attack("fchmod", lambda: os.fchmod(own, 0o4755))
attack("fchmod by high bits", lambda: call(N["fchmod"], own, 1 << 32 | 0o4755))
name = ctypes.create_string_buffer(b"own")
attack("fchmodat", lambda: call(N["fchmodat"], -100, ctypes.addressof(name), 0o4755))
attack("fchmodat2", lambda: call(N["fchmodat2"], -100, ctypes.addressof(name), 0o4755, 0))
attack("open", lambda: os.open("born", os.O_CREAT | os.O_WRONLY, 0o4755))
attack("unnamed", lambda: os.open(".", os.O_TMPFILE | os.O_WRONLY, 0o4755))
attack("mknod", lambda: os.mknod("node", 0o104755))
if "creat" in N:
    attack("creat", lambda: call(N["creat"], ctypes.addressof(name), 0o4755))
attack("folder", lambda: os.chmod(".", 0o2755))
attack("allowed: a mode", lambda: os.chmod("own", 0o1755))
attack("allowed: without a mode", lambda: os.close(
    call(N["openat"], -100, ctypes.addressof(name), os.O_RDONLY, 0o6777)))
""")
    allowed = {name: verdicts.pop(name) for name in list(verdicts) if name.startswith("allowed")}
    assert set(allowed.values()) == {"DONE"}
    assert set(verdicts.values()) == {"EPERM"}
    assert {path.stat().st_mode & 0o6000 for path in ground.workspace.rglob("*")} == {0}


@row(74)
async def test_74_only_the_caller_changes_its_priority(ground: Field) -> None:
    before = os.getpriority(os.PRIO_PROCESS, 0), os.getpriority(os.PRIO_USER, 0)
    # Were it to succeed without a PID namespace, everything of this user would be slower for good.
    rise = 7 if kind_of(ground.backend) == "bubblewrap" else 0
    verdicts = await ground.verdicts(f"""
level = os.getpriority(os.PRIO_PROCESS, 0) + {rise}
attack("user", lambda: os.setpriority(os.PRIO_USER, 0, level))
attack("user by name", lambda: os.setpriority(os.PRIO_USER, os.getuid(), level))
attack("group", lambda: os.setpriority(os.PRIO_PGRP, 0, level))
attack("server", lambda: os.setpriority(os.PRIO_PROCESS, F["pid"], level))
best_effort = 2 << 13 | 4
attack("input of the user", lambda: call(N["ioprio_set"], 3, os.getuid(), best_effort))
attack("input of the group", lambda: call(N["ioprio_set"], 2, 0, best_effort))
attack("allowed: own", lambda: os.setpriority(os.PRIO_PROCESS, 0, level))
attack("allowed: own input", lambda: call(N["ioprio_set"], 1, 0, best_effort))
""")
    allowed = {verdicts.pop(name) for name in list(verdicts) if name.startswith("allowed")}
    assert allowed == {"DONE"}
    assert verdicts["server"] in {"EPERM", "ESRCH", "ProcessLookupError"}
    assert set(verdicts.values()) == {"EPERM"} or rise
    assert (os.getpriority(os.PRIO_PROCESS, 0), os.getpriority(os.PRIO_USER, 0)) == before


@row(75)
async def test_75_nothing_is_left_in_queues_and_attributes(ground: Field) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    name, made = f"/apexbridge-{os.getpid()}", f"/apexbridge-{os.getpid()}-made"
    queue = libc.mq_open(name.encode(), os.O_CREAT | os.O_RDWR, 0o666, None)
    md = ground.skill / "SKILL.md"
    try:
        verdicts = await ground.verdicts(f"""
def queue(name, flags):
    text = ctypes.create_string_buffer(name.encode())
    call(N["mq_open"], ctypes.addressof(text), flags, 0o666, 0)
attack("another's queue", lambda: queue({name[1:]!r}, os.O_RDONLY))
try:
    queue({made[1:]!r}, os.O_CREAT | os.O_RDWR)
except OSError:
    pass
md = F["skill"] + "/SKILL.md"
attack("attribute", lambda: os.setxattr(md, "user.x", b"1"))
attack("no attribute", lambda: os.removexattr(md, "user.x"))
""")
        assert libc.mq_open(made.encode(), os.O_RDONLY) == -1
    finally:
        os.close(queue)
        libc.mq_unlink(name.encode())
        libc.mq_unlink(made.encode())
    assert verdicts.pop("another's queue") in {"ENOENT", "EPERM"}
    assert set(verdicts.values()) <= {"EROFS", "ENOTSUP", "EOPNOTSUPP"}
    assert os.listxattr(md) == []
