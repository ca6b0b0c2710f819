"""Install sources: addresses of skills, and how each kind is resolved and fetched."""
