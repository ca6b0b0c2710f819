"""The only builder of concrete things: `core` ties them together, the others build the parts."""

from apexbridge.runtime.core import Runtime
from apexbridge.runtime.executing import Bounds

__all__ = ["Bounds", "Runtime"]
