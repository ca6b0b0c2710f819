"""Zip archives of skills: strict parsing against zip slip, zip bombs and parser differentials."""
