"""Web console: its static files and its login session."""
