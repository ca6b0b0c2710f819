"""Skills of plugins: discovery on disk, manifests, and the source of one plugin."""
