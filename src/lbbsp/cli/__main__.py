"""``python -m lbbsp.cli``."""

from lbbsp.cli import main

main()
