"""Package commands."""
