"""Install policy and archive limits (zip bomb protection) from settings."""

from apexbridge.lifecycle.signature_check import SignaturePolicy
from apexbridge.lifecycle.transactions import InstallPolicy
from apexbridge.lifecycle.zip.archive import ArchiveLimits
from apexbridge.settings.schema import InstallSettings
from apexbridge.signatures import PublicKey

_MB, _MIB = 1_000_000, 1024 * 1024


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
