"""Rejected: a gate said no, and there is more to tell than that."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gdn_ir.verify import VerificationFailed


class Rejected(VerificationFailed):
    """A failed verification with what was found; under `--json` both are one document."""

    def __init__(self, message: str, found: Mapping[str, Any]) -> None:
        super().__init__(message)
        self.found = found
