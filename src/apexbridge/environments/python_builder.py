"""Python environments: resolved and installed by uv in the build sandbox, wheels first."""

import platform
import re
import shutil
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import anyio.to_thread
import uv

from apexbridge.environments.build_sandbox import BuildSandbox, build_error
from apexbridge.environments.needs import Package
from apexbridge.environments.package_index import PackageIndex
from apexbridge.environments.seal import remove_leftovers, unsafe_errors
from apexbridge.environments.store import Environment, EnvironmentStore, Lock, make_key
from apexbridge.errors import DependencyError
from apexbridge.sandbox.base import ExecutionResult
from apexbridge.sandbox.interpreters import Interpreter, program_version

_PINNED = re.compile(r"^([A-Za-z0-9][\w.-]*)(?:\[[\w., -]*\])?==([^\s;]+)", re.MULTILINE)
_LOCK_LINE = re.compile(_PINNED.pattern + r"(?: ;.*)?(?: \\)?|    --hash=\w+:[0-9a-f]+(?: \\)?")
"""All that a lock consists of: code of a package that is built could write more to the output."""
_NOT_FOUND = re.compile(r"Because ([\w.-]+) was not found in the package registry")
_SHOWN_LINE = 200
_WHEELS_ONLY = ("--only-binary", ":all:")
_SOURCE_NEEDED = re.compile(
    r"no usable wheels|has no wheels|no wheels|building from source is disabled|"
    r"no compatible wheels|--no-build|only-binary"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class PythonBuilder:
    """Resolve and build for one interpreter, from one index."""

    store: EnvironmentStore
    sandbox: BuildSandbox
    index: PackageIndex
    python: Interpreter

    async def lock(self, packages: Sequence[Package]) -> Lock:
        """Resolve requirements to exact versions with hashes.

        Wheels first: no code of a package runs then. Only what has none is built from source, in
        the sandbox, and not where a build could read credentials of the index.

        Raises:
            DependencyError: If there is no resolution, or the index is not reached.
        """
        wanted = {package.text: package for package in packages}
        dropped = list[str]()
        while True:
            result, builds_sources = await self._compile(sorted(wanted))
            if result.outcome == "ok":
                return _to_lock(result.stdout.decode(), wanted, dropped, builds=builds_sources)
            absent = self._absent_guesses(result, wanted)
            if not absent:
                raise self._failure(result, ran_code=builds_sources)
            for package in absent:  # a guess that is wrong must not stop the rest
                del wanted[package.text]
                dropped.append(package.name)
            if not wanted:
                return Lock(ecosystem="python", requirements=(), text="", dropped=tuple(dropped))

    async def _compile(self, texts: Sequence[str]) -> tuple[ExecutionResult, bool]:
        wheels = await self._compile_once(texts, _WHEELS_ONLY)
        may_build = self.sandbox.is_isolated and not self.index.has_credentials
        if wheels.outcome == "ok" or not may_build or not _needs_source(wheels):
            return wheels, False
        return await self._compile_once(texts, ()), True

    async def _compile_once(self, texts: Sequence[str], flags: Sequence[str]) -> ExecutionResult:
        with self.store.staging() as place:
            uv_argv = await anyio.to_thread.run_sync(self._prepare, place)
            (place / "requirements.in").write_text("\n".join(texts) + "\n", "utf-8")
            words = ["pip", "compile", "requirements.in", "--generate-hashes", "--no-annotate"]
            words += ["--no-header", "--no-strip-extras", "--python", str(self.python.program)]
            return await self.sandbox.run(
                place, [*uv_argv, *words, *flags], index=self.index, env=self._variables(place)
            )

    def _absent_guesses(self, result: ExecutionResult, wanted: dict[str, Package]) -> list[Package]:
        names = set(_NOT_FOUND.findall(" ".join(result.stderr.decode("utf-8", "replace").split())))
        found = [package for package in wanted.values() if package.name in names]
        return [package for package in found if package.certainty == "guess"]

    def _failure(self, result: ExecutionResult, *, ran_code: bool) -> DependencyError:
        text = " ".join(result.stderr.decode("utf-8", "replace").split())
        absent = sorted(set(_NOT_FOUND.findall(text)))
        if absent:
            return DependencyError(
                code="dependencies_absent", packages=", ".join(absent), index=self.index.shown
            )
        if self.index.has_credentials and _needs_source(result):
            return DependencyError(text[-1_000:], code="dependencies_source_private")
        return build_error(result, self.index, ran_code=ran_code)

    async def build(self, lock: Lock) -> Environment:
        """Install a lock into an environment of its own address; an existing one is returned.

        Raises:
            DependencyError: If a hash differs, a build fails, or what it left is unsafe.
        """
        key = make_key("python", lock.text, python_platform(self.python))
        existing = await anyio.to_thread.run_sync(self.store.get, key)
        if existing is not None:
            return existing
        with self.store.staging() as place:
            await self._install(place, lock)
            await anyio.to_thread.run_sync(self._tidy, place)
            await self._compile_bytecode(place)
            return await anyio.to_thread.run_sync(self._commit, place / "env", key, lock)

    def _commit(self, built: Path, key: str, lock: Lock) -> Environment:
        return self.store.commit(
            built,
            key,
            lock,
            interpreter=program_version(self.python.program),
            link=self.python.program,
            max_bytes=self.sandbox.limits.bytes,
        )

    async def _install(self, place: Path, lock: Lock) -> None:
        uv_argv = await anyio.to_thread.run_sync(self._prepare, place)
        (place / "lock.txt").write_text(lock.text, "utf-8")
        env = self._variables(place)
        words = ["venv", "env", "--relocatable", "--no-project", "--python"]
        made = await self.sandbox.run(place, [*uv_argv, *words, str(self.python.program)], env=env)
        if made.outcome != "ok":
            raise build_error(made, self.index)
        words = ["pip", "install", "--python", "env", "--require-hashes", "--no-deps"]
        words += ["--requirements", "lock.txt", *(() if lock.builds_sources else _WHEELS_ONLY)]
        done = await self.sandbox.run(place, [*uv_argv, *words], index=self.index, env=env)
        if done.outcome != "ok":
            raise build_error(done, self.index, ran_code=lock.builds_sources)

    def _tidy(self, place: Path) -> None:
        """Write anew what starts the interpreter: a build could have changed it."""
        remove_leftovers(place, ("bin", "lib"))  # also files that are hard links to uv's cache
        with unsafe_errors(place / "env"):
            self._write_interpreter(place / "env")

    def _write_interpreter(self, env: Path) -> None:
        for name in ("bin/python", "bin/python3", f"bin/{self.python.program.name}"):
            path = env / name
            if path.is_symlink() or path.exists():
                path.unlink()
        (env / "bin/python").symlink_to(self.python.program)
        for name in {"python3", self.python.program.name} - {"python"}:
            (env / "bin" / name).symlink_to("python")
        home = self.python.program.parent
        version = program_version(self.python.program).rpartition(" ")[2]
        lines = (f"home = {home}", f"version = {version}", "include-system-site-packages = false")
        config = env / "pyvenv.cfg"
        config.unlink(missing_ok=True)
        config.write_text("\n".join(lines) + "\n", "utf-8")
        config.chmod(0o644)

    async def _compile_bytecode(self, place: Path) -> None:
        """Compile once: a read-only environment cannot keep what a start compiles.

        By the base interpreter, without the environment and without network. Files that do not
        compile (templates, other versions of Python) are no failure.
        """
        words = ("-I", "-S", "-m", "compileall", "-q", "-j", "2", "--invalidation-mode")
        flags = ("unchecked-hash", "-s", str(place), "-p", "environment", str(place / "env/lib"))
        await self.sandbox.run(place, [str(self.python.program), *words, *flags])

    def _prepare(self, place: Path) -> tuple[str, ...]:
        """Write uv's configuration into the folder; returns uv's command line."""
        lines = [f'[[index]]\nurl = "{_toml(self.index.urls[0])}"\ndefault = true\n']
        lines += [f'[[index]]\nurl = "{_toml(url)}"\n' for url in self.index.urls[1:]]
        # In a file and not in a variable or an argument: those are shown to other users by `ps`.
        config = place / "uv.toml"
        config.write_text("".join(reversed(lines)), "utf-8")
        config.chmod(0o600)
        shutil.rmtree(place / "env", ignore_errors=True)
        return (_uv_program(), "--config-file", str(config), "--no-progress", "--color", "never")

    def _variables(self, place: Path) -> dict[str, str]:
        ca_file = {"SSL_CERT_FILE": self.index.ca_file} if self.index.ca_file else {}
        return {
            "UV_CACHE_DIR": str(place / "cache"),
            "UV_PYTHON_DOWNLOADS": "never",
            "UV_CONCURRENT_DOWNLOADS": "12",
            "UV_HTTP_TIMEOUT": "60",
            "SOURCE_DATE_EPOCH": "315532800",  # the earliest that a wheel can hold
            **ca_file,
        }


def _needs_source(result: ExecutionResult) -> bool:
    return bool(_SOURCE_NEEDED.search(" ".join(result.stderr.decode("utf-8", "replace").split())))


def _toml(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"')


def _to_lock(text: str, wanted: dict[str, Package], dropped: list[str], *, builds: bool) -> Lock:
    unknown = next((line for line in text.splitlines() if not _LOCK_LINE.fullmatch(line)), None)
    if unknown is not None:
        raise DependencyError(unknown[:_SHOWN_LINE], code="dependencies_failed")
    return Lock(
        ecosystem="python",
        requirements=tuple(sorted(wanted)),
        text=text,
        packages=tuple(f"{name}=={version}" for name, version in _PINNED.findall(text)),
        builds_sources=builds,
        dropped=tuple(dropped),
    )


def python_platform(python: Interpreter) -> str:
    """Return interpreter version and platform, which a resolution is valid for. Blocks."""
    libc = "-".join(platform.libc_ver())
    version = program_version(python.program)
    return f"{version} {python.program} {sys.platform}-{platform.machine()} {libc}"


def python_mounts(python: Interpreter) -> tuple[Path, ...]:
    """Return what a build must read: uv, and the interpreter where it is not in `/usr`."""
    return (Path(_uv_program()).resolve(), *python.prefix)


def _uv_program() -> str:
    try:
        return uv.find_uv_bin()
    except FileNotFoundError:  # its package is there without its program, or is being replaced
        raise DependencyError(code="dependencies_tool", tool="uv") from None
