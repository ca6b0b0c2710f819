"""Package admin."""
