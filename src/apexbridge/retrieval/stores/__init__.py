"""Vector stores: index entries in memory, SQLite or LanceDB."""
