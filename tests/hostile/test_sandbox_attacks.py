"""What strangers' code tries, on every backend that works here; the numbers are the attacks'."""

import ctypes
import signal

import pytest

from tests.hostile.sandbox_field import Field

pytestmark = pytest.mark.anyio

DENIED = {
    "01-04 10-11 files outside": """
attack("shadow", lambda: read("/etc/shadow"))
attack("secret", lambda: read(F["secret"]))
attack("sibling", lambda: read(F["sibling"]))
attack("server code", lambda: read(F["server_code"]))
attack("proc root", lambda: read(f"/proc/{F['pid']}/root{F['secret']}"))
attack("proc cwd", lambda: os.listdir(f"/proc/{F['pid']}/cwd"))
attack("hardlink skill", lambda: os.link(F["skill"] + "/SKILL.md", F["workspace"] + "/h"))
attack("hardlink passwd", lambda: os.link("/etc/passwd", F["workspace"] + "/p"))
""",
    "05 the skill is read-only": """
md = F["skill"] + "/SKILL.md"
attack("write", lambda: write(md))
attack("append", lambda: write(md, "ab"))
attack("replace", lambda: (write(F["workspace"] + "/n"), os.replace(F["workspace"] + "/n", md)))
attack("unlink", lambda: os.unlink(md))
attack("mkdir", lambda: os.mkdir(F["skill"] + "/d"))
attack("rename", lambda: os.rename(F["skill"], F["skill"] + "2"))
attack("truncate", lambda: os.truncate(md, 0))
""",
    "07-08 writing elsewhere": """
for place in ("/usr", "/etc", "/var/tmp", "/", F["outside"], "/usr/bin", "/proc/self"):
    attack(place, lambda: write(os.path.join(place, "made-by-attack")))
os.symlink(F["secret"], "l")
attack("through a link", lambda: read("l"))
attack("write through a link", lambda: write("l"))
attack("up and out", lambda: read("../secret"))
""",
    "13-15 devices and our own program": """
attack("exe", lambda: write("/proc/self/exe", "r+b"))
attack("python", lambda: write(sys.executable, "r+b"))
attack("mknod", lambda: os.mknod("dev", 0o60666, os.makedev(8, 0)))
attack("mknod chr", lambda: os.mknod("dev2", 0o20666, os.makedev(1, 1)))
for name in ("mem", "kmsg", "kvm", "vda", "fuse", "loop0", "net/tun", "vsock", "vhost-vsock"):
    attack(name, lambda: read("/dev/" + name))
""",
    "17 kernel knobs": """
def knob(path):  # writing back what is there harms nobody if it should succeed
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
""",
    "19-21 the server's process": """
pid = F["pid"]
for name in ("environ", "mem", "maps"):
    attack(name, lambda: read(f"/proc/{pid}/{name}"))
attack("fd", lambda: os.listdir(f"/proc/{pid}/fd"))
attack("ptrace", lambda: call(101, 16, pid, 0, 0))
attack("process_vm_readv", lambda: call(310, pid, 0, 0, 0, 0, 0))
attack("pidfd_getfd", lambda: call(438, 3, 0, 0))
attack("kill", lambda: os.kill(pid, signal.SIGSTOP))
attack("kill 0", lambda: os.kill(pid, 0))
""",
    "22 more than was given": """
import resource
for name in ("RLIMIT_DATA", "RLIMIT_NOFILE", "RLIMIT_FSIZE", "RLIMIT_CPU"):
    hard = resource.getrlimit(getattr(resource, name))[1]
    attack(name, lambda: resource.setrlimit(getattr(resource, name), (hard * 2, hard * 2)))
attack("fifo", lambda: os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(10)))
attack("nice", lambda: os.nice(-5))
""",
    "38-43 the network": """
attack("tcp", lambda: socket.create_connection(("127.0.0.1", F["tcp"]), 1))
attack("metadata", lambda: socket.create_connection(("169.254.169.254", 80), 1))
attack("dns", lambda: socket.getaddrinfo("example.org", 80))
attack("unix", lambda: socket.socket(socket.AF_UNIX).connect(F["unix"]))
attack("abstract", lambda: socket.socket(socket.AF_UNIX).connect(F["abstract"]))
""",
    "44 odd sockets": """
for family in (40, 16, 17, 38, 44, 31, 29, 21, 15):
    attack(str(family), lambda: socket.socket(family, socket.SOCK_DGRAM))
attack("raw", lambda: socket.socket(socket.AF_INET, socket.SOCK_RAW, 1))
""",
    "46-49 namespaces, mounts, powers": """
attack("unshare", lambda: call(272, 0x10000000))
attack("clone", lambda: call(56, 0x10000000 | 17, 0, 0, 0, 0))
attack("clone3", lambda: call(435, 0, 0))
attack("setns", lambda: call(308, 0, 0))
for number in (165, 166, 161, 155, 428, 430, 442):
    attack(str(number), lambda: call(number, 0, 0, 0, 0, 0))
for number in (425, 250, 248, 321, 298, 323, 246, 175, 313, 304, 167, 169):
    attack(str(number), lambda: call(number, 0, 0, 0, 0, 0))
attack("setuid", lambda: os.setuid(0 if os.getuid() else 65534))
attack("setgroups", lambda: os.setgroups([0]))
attack("chroot", lambda: os.chroot("/"))
""",
    "50-51 other ways into the kernel": """
attack("x32", lambda: call(0x40000000 + 39))
import fcntl
attack("TIOCSTI", lambda: fcntl.ioctl(0, 0x5412, b"x"))
attack("TIOCLINUX", lambda: fcntl.ioctl(0, 0x541C, b"x"))
""",
}


@pytest.mark.promise("X09", "X10", "X11")
@pytest.mark.parametrize("attacks", DENIED)
async def test_an_attack_is_denied(ground: Field, attacks: str) -> None:
    verdicts = await ground.verdicts(DENIED[attacks])
    assert verdicts
    assert {name for name, verdict in verdicts.items() if verdict == "DONE"} == set()
    assert (ground.skill / "SKILL.md").read_bytes().startswith(b"---")


async def test_06_modes_and_times_of_the_skill(ground: Field) -> None:
    verdicts = await ground.verdicts("""
md = F["skill"] + "/SKILL.md"
attack("chmod", lambda: os.chmod(md, 0o777))
attack("utime", lambda: os.utime(md, (1, 1)))
attack("setxattr", lambda: os.setxattr(md, "user.x", b"1"))
""")
    if ground.sandbox.name == "bubblewrap":
        assert set(verdicts.values()) == {"EROFS"}
    else:  # Landlock cannot see these; the docs say so
        assert set(verdicts) == {"chmod", "utime", "setxattr"}


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


@pytest.mark.promise("X09")
async def test_18_and_48_a_clean_environment_and_no_powers(
    ground: Field, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-secret")
    result = await ground.play("""
print(sorted(os.environ), libc.prctl(39, 0, 0, 0, 0))
head = (ctypes.c_uint32 * 2)(0x20080522, 0)
caps = (ctypes.c_uint32 * 6)()
libc.syscall(125, head, caps)
print(list(caps))
""")
    environment, caps = result.stdout.decode().splitlines()
    assert set(environment.rpartition("]")[0].strip("[]'").split("', '")) <= {
        "PATH",
        "LC_CTYPE",
        "PWD",
    }
    assert environment.endswith(" 1")
    assert caps == "[0, 0, 0, 0, 0, 0]"


async def test_21_killing_everyone_kills_nobody_outside(ground: Field) -> None:
    hit = list[int]()
    before = signal.signal(signal.SIGUSR1, lambda number, _: hit.append(number))
    try:
        await ground.play("try:\n    os.kill(-1, signal.SIGUSR1)\nexcept OSError:\n    pass\n")
    finally:
        signal.signal(signal.SIGUSR1, before)
    assert hit == []


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
    assert verdicts["udp"] != "DONE"


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
        assert verdicts["shm"] != "DONE"
    finally:
        libc.shmctl(number, 0, None)
