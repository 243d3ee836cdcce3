"""Draws the gallery again: `python -m gdn_ir.visualizations.gallery`, from a checkout."""

import sys

from gdn_ir.visualizations.gallery.pictures import write_all

if __name__ == "__main__":
    sys.stdout.writelines(f"wrote {path}\n" for path in write_all())
