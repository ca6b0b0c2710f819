"""Benchmarks: ratios to a named peer or a physical limit in the same run. Never tests."""
