"""Package remote."""
