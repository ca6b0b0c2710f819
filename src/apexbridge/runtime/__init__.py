"""Composition root and services: `container` builds, the other modules are the services."""

from apexbridge.runtime.container import Runtime
from apexbridge.runtime.script_runner import ResourceControls

__all__ = ["ResourceControls", "Runtime"]
