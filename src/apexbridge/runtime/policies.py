"""Install policy and archive limits (zip bomb protection) from settings."""

from apexbridge.lifecycle.install_sources.base import FetchPolicy
from apexbridge.lifecycle.signature_check import SignaturePolicy
from apexbridge.lifecycle.transactions import InstallPolicy
from apexbridge.lifecycle.zip.archive import ArchiveLimits
from apexbridge.settings.schema import InstallSettings, Settings
from apexbridge.signatures import PublicKey
from apexbridge.sources.remote.http_client import FetchLimits

_MB, _MIB = 1_000_000, 1024 * 1024
_REPOSITORY_RATIO = 4
_REPOSITORY_FILES, _REPOSITORY_PATH_BYTES = 20_000, 480
"""A repository holds more than its skills; each of those has the limits of a skill."""


def archive_limits(chosen: InstallSettings) -> ArchiveLimits:
    """Build the limits of archives: sizes, file count, compression ratio and depth."""
    return ArchiveLimits(
        packed_bytes=int(chosen.zip_mb * _MB),
        unpacked_bytes=chosen.unpacked_mib * _MIB,
        file_bytes=int(chosen.file_mb * _MB),
        files=chosen.max_files,
        ratio=chosen.max_compression_ratio,
        depth=chosen.max_path_depth,
    )


def fetch_policy(settings: Settings) -> FetchPolicy:
    """Build the limits of fetching a repository or an archive with several skills."""
    chosen = settings.install
    size = int(chosen.repository_mb * _MB)
    return FetchPolicy(
        fetch=FetchLimits.from_cidr(
            seconds=chosen.fetch_timeout_seconds,
            max_bytes=size,
            allow_networks=settings.remote.allow_networks,
        ),
        archive=ArchiveLimits(
            packed_bytes=size,
            unpacked_bytes=_REPOSITORY_RATIO * size,
            file_bytes=_REPOSITORY_RATIO * size,
            files=_REPOSITORY_FILES,
            ratio=chosen.max_compression_ratio,
            depth=2 * chosen.max_path_depth,
            path_bytes=_REPOSITORY_PATH_BYTES,
        ),
    )


def install_policy(chosen: InstallSettings) -> InstallPolicy:
    """Build the policy of installs: limits, blocking severity, versions to keep."""
    return InstallPolicy(
        limits=archive_limits(chosen),
        blocks_at=chosen.block_level,
        keep_versions=chosen.keep_versions,
        signatures=signature_policy(chosen),
    )


def signature_policy(chosen: InstallSettings) -> SignaturePolicy:
    """Build the policy of signatures: trusted keys, and whether one must have signed."""
    return SignaturePolicy(
        trusted_keys=tuple(map(PublicKey.parse, chosen.trusted_keys)),
        is_required=chosen.require_signature,
    )
