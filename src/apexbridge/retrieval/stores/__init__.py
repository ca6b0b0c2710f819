"""Places to keep entries, one module each."""
