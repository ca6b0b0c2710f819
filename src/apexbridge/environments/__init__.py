"""Environments of skills: packages that they need, resolved, locked, built in a sandbox, shared."""
