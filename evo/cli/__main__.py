"""`python -m evo.cli`: the command line without its installed script."""

from evo.cli import main

main()
