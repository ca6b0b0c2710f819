"""Package zip."""
