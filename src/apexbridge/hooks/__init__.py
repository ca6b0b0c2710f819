"""Hooks: commands and URLs that run at events of a session, and their merged verdicts."""
