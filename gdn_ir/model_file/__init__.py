"""An untrusted model file in (`reading`), a file written atomically out (`writing`)."""

from gdn_ir.file_checks.bad_model import BadModel
from gdn_ir.model_file.reading import load
from gdn_ir.model_file.writing import check_place, save

__all__ = ["BadModel", "check_place", "load", "save"]
