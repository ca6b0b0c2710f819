"""Command-line interface, built with Typer."""
