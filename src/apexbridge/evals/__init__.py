"""Evaluations of skill search: retrieval metrics, trigger tests, interference; no model calls."""
