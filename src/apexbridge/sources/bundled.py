"""The skills that ship with ApexBridge."""

from pathlib import Path

from apexbridge import bundled
from apexbridge.skills.model import Origin
from apexbridge.sources.folders import FolderSource


def bundled_source() -> FolderSource:
    """Read them from where the package is installed."""
    return FolderSource(Path(bundled.__file__).parent, Origin.BUNDLED)
