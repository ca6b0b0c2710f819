"""Skills API: list, search, install, version and run skills over HTTP."""
