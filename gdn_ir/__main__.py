"""`python -m gdn_ir`."""

from gdn_ir.cli import main

main()
