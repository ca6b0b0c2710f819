"""The only builder of concrete things: `core` ties them together, the others build the parts."""

from apexbridge.runtime.core import Bounds, Runtime

__all__ = ["Bounds", "Runtime"]
