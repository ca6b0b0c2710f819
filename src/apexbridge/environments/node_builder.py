"""Node.js packages: resolved and installed by npm in the build sandbox, without their scripts.

`register.mjs` makes them importable: Node.js resolves `require` along NODE_PATH and `import` not.
"""

import json
import platform
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Any

import anyio.to_thread

from apexbridge.environments.build_sandbox import BuildSandbox, build_error
from apexbridge.environments.needs import Package
from apexbridge.environments.package_index import PackageIndex
from apexbridge.environments.store import Environment, EnvironmentStore, Lock, make_key
from apexbridge.errors import DependencyError
from apexbridge.sandbox.base import ExecutionResult
from apexbridge.sandbox.interpreters import Interpreter, find, program_version

REGISTER = "register.mjs"
_FLAGS = ("--ignore-scripts", "--no-audit", "--no-fund", "--no-update-notifier", "--loglevel=error")


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeBuilder:
    """Resolve and build for one Node.js, from one registry."""

    store: EnvironmentStore
    sandbox: BuildSandbox
    index: PackageIndex
    node: Interpreter

    async def lock(self, packages: Sequence[Package]) -> Lock:
        """Resolve ranges to exact versions with integrity hashes.

        Raises:
            DependencyError: If there is no resolution, or the registry is not reached.
        """
        wanted, dropped = {package.text: package for package in packages}, list[str]()
        while wanted:
            manifest = _manifest(wanted.values())
            with self.store.staging() as place:
                result = await self._npm(place, manifest, "", "install", "--package-lock-only")
                if result.outcome == "ok":
                    text = (place / "env/package-lock.json").read_text("utf-8")
                    return _to_lock(text, wanted, dropped)
            absent = [one for one in wanted.values() if _is_absent(one, result)]
            if not absent:
                raise build_error(result, self.index)
            if any(package.certainty != "guess" for package in absent):
                names = ", ".join(package.name for package in absent)
                raise DependencyError(
                    code="dependencies_absent", packages=names, index=self.index.shown
                )
            for package in absent:
                del wanted[package.text]
                dropped.append(package.name)
        return Lock(ecosystem="node", requirements=(), text="", dropped=tuple(dropped))

    async def build(self, lock: Lock) -> Environment:
        """Install a lock into an environment of its own address; an existing one is returned.

        Raises:
            DependencyError: If an integrity hash differs, or what was installed is unsafe.
        """
        key = make_key("node", lock.text, node_platform(self.node))
        existing = await anyio.to_thread.run_sync(self.store.get, key)
        if existing is not None:
            return existing
        locked: dict[str, Any] = json.loads(lock.text)
        manifest = json.dumps({"private": True, **_root_of(locked)})
        with self.store.staging() as place:
            result = await self._npm(place, manifest, lock.text, "ci")
            if result.outcome != "ok":
                raise build_error(result, self.index)
            (place / "env/node_modules").mkdir(exist_ok=True)
            (place / "env/node_modules/.package-lock.json").unlink(missing_ok=True)
            text = resources.files(__package__ or "").joinpath(REGISTER).read_text("utf-8")
            register = place / "env" / REGISTER
            register.unlink(missing_ok=True)
            register.write_text(text, "utf-8")
            return await anyio.to_thread.run_sync(self._commit, place / "env", key, lock)

    def _commit(self, built: Path, key: str, lock: Lock) -> Environment:
        return self.store.commit(
            built,
            key,
            lock,
            interpreter=program_version(self.node.program),
            link=None,
            max_bytes=self.sandbox.limits.bytes,
        )

    async def _npm(self, place: Path, manifest: str, locked: str, *words: str) -> ExecutionResult:
        npm = find("npm")
        if npm is None:
            raise DependencyError(code="dependencies_tool", tool="npm")
        (place / "env").mkdir()
        (place / "env/package.json").write_text(manifest, "utf-8")
        if locked:
            (place / "env/package-lock.json").write_text(locked, "utf-8")
        settings = place / "npmrc"
        settings.write_text("\n".join((*self.index.npm_lines, "")), "utf-8")
        settings.chmod(0o600)
        ca_file = {"NODE_EXTRA_CA_CERTS": self.index.ca_file} if self.index.ca_file else {}
        env = {
            "npm_config_cache": str(place / "cache"),
            "npm_config_userconfig": str(settings),
            "npm_config_globalconfig": "/dev/null",
            "npm_config_omit_lockfile_registry_resolved": "true",
            "npm_config_fetch_retries": "1",
            **ca_file,
        }
        argv = [str(npm.program), *words, *_FLAGS, "--prefix", str(place / "env")]
        return await self.sandbox.run(place, argv, index=self.index, env=env)


def node_platform(node: Interpreter) -> str:
    """Return major version and platform, which a resolution is valid for. Blocks."""
    major = program_version(node.program).partition(".")[0]
    return f"node {major} {sys.platform}-{platform.machine()}"


def _manifest(packages: Iterable[Package]) -> str:
    wanted = {package.name: package.text.rpartition("@")[2] for package in packages}
    return json.dumps({"name": "environment", "version": "1.0.0", "private": True,
                       "dependencies": wanted})  # fmt: skip


def _root_of(locked: dict[str, Any]) -> dict[str, Any]:
    root: dict[str, Any] = locked.get("packages", {}).get("", {})
    return {key: root[key] for key in ("name", "version", "dependencies") if key in root}


def _is_absent(package: Package, result: ExecutionResult) -> bool:
    text = result.stderr.decode("utf-8", "replace")
    quoted = package.name.replace("/", "%2f")
    return "E404" in text and (f"/{quoted} " in text or f"'{package.name}@" in text)


def _to_lock(text: str, wanted: dict[str, Package], dropped: list[str]) -> Lock:
    locked: dict[str, Any] = json.loads(text)
    found = [(path.rpartition("node_modules/")[2], facts)
             for path, facts in locked.get("packages", {}).items() if path]  # fmt: skip
    unhashed = [name for name, facts in found
                if not facts.get("integrity") and not facts.get("inBundle")]  # fmt: skip
    if unhashed:  # a link, a repository, or a registry that has no hashes
        raise DependencyError(
            f"no hash is known of {', '.join(unhashed)}", code="dependencies_failed"
        )
    return Lock(
        ecosystem="node",
        requirements=tuple(sorted(wanted)),
        text=text,
        packages=tuple(f"{name}=={facts.get('version', '')}" for name, facts in found),
        dropped=tuple(dropped),
    )
