"""Install policy from settings."""

from apexbridge.lifecycle.zip.limits import ArchiveLimits
from apexbridge.runtime.policies import archive_limits
from apexbridge.settings.schema import InstallSettings


def test_default_settings_are_the_default_archive_limits() -> None:
    assert archive_limits(InstallSettings()) == ArchiveLimits()
