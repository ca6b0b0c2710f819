"""Package chat."""
