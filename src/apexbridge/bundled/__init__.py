"""Skills that ship with ApexBridge; each folder here is one."""
