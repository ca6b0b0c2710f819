"""Package console."""
