"""What settings mean for the rooms below, which know no settings."""

from apexbridge.lifecycle.transactions import InstallPolicy
from apexbridge.lifecycle.zip.archive import ArchiveLimits
from apexbridge.settings.schema import InstallSettings

_MB, _MIB = 1_000_000, 1024 * 1024


def archive_limits(chosen: InstallSettings) -> ArchiveLimits:
    """The largest archive that is taken."""
    return ArchiveLimits(
        packed_bytes=int(chosen.zip_mb * _MB),
        unpacked_bytes=chosen.unpacked_mib * _MIB,
        file_bytes=int(chosen.file_mb * _MB),
        files=chosen.max_files,
        ratio=chosen.max_compression_ratio,
        depth=chosen.max_path_depth,
    )


def install_policy(chosen: InstallSettings) -> InstallPolicy:
    """What a skill is held to before it may stay."""
    return InstallPolicy(
        limits=archive_limits(chosen),
        blocks_at=chosen.block_level,
        keep_versions=chosen.keep_versions,
    )
