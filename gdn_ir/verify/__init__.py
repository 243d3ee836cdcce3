"""Checks that a rewritten graph is valid and computes what it did."""

from __future__ import annotations


class VerificationFailed(Exception):
    """A gate rejected a model; the message names the pass, the place and the evidence."""
