"""One module per command group, imported when one of its commands is invoked."""
