"""Package skills."""
