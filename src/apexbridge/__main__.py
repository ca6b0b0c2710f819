"""`python -m apexbridge` is the command line."""

from apexbridge.cli.main import main

main()
