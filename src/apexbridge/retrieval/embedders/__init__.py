"""Embedders: text to vector, one module for each backend."""
