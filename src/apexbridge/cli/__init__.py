"""The terminal door: parse, call, print."""
