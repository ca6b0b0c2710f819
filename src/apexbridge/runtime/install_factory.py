"""Create the install service: the registry of install sources, within the limits of settings."""

from apexbridge.lifecycle.install_sources.base import InstallSource, InstallSources
from apexbridge.lifecycle.install_sources.forge import ForgeSource
from apexbridge.lifecycle.install_sources.git import GitPrograms, GitSource
from apexbridge.lifecycle.install_sources.local import ArchiveSource, LocalSource
from apexbridge.lifecycle.manager import SkillManager
from apexbridge.lifecycle.store import SkillStore
from apexbridge.runtime.install_service import InstallService
from apexbridge.runtime.policies import fetch_policy
from apexbridge.runtime.script_runner import ScriptRunner
from apexbridge.sandbox.backends import UnsandboxedBackend
from apexbridge.sandbox.base import Sandbox
from apexbridge.sandbox.workspace import Workspaces
from apexbridge.settings import Config


def create_install_service(
    config: Config,
    manager: SkillManager,
    store: SkillStore,
    runner: ScriptRunner,
    *,
    allows_ssh: bool = False,
) -> InstallService:
    """Create the service; with `allows_ssh` git may use the keys of the user, without a sandbox."""
    policy = fetch_policy(config.settings)

    async def sandbox() -> Sandbox:
        return (await runner.select_sandbox()).require()

    programs = GitPrograms(
        sandbox=sandbox,
        ssh=UnsandboxedBackend() if allows_ssh else None,
        environment=config.ssh,
    )
    # One entry a kind of address: the first that knows an address has it.
    sources: list[InstallSource] = [
        LocalSource(policy, config.home, config.project),
        ForgeSource(policy),
        ArchiveSource(policy),
        GitSource(policy, Workspaces(config.workspaces), programs),
    ]
    return InstallService(manager, store, InstallSources(sources))
