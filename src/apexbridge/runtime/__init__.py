"""The only builder of concrete things: `core` ties them together, the others build the parts."""

from apexbridge.runtime.container import Runtime
from apexbridge.runtime.script_runner import ResourceControls

__all__ = ["ResourceControls", "Runtime"]
