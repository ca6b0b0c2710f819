"""Package plugins."""
