"""Ways to turn texts into vectors, one module each."""
