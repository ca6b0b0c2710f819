"""Skills from the network: HTTP client, object storage, skill indexes, pinned downloads."""
