"""Rewrites, checks and draws ONNX graphs that contain a Gated DeltaNet.

import gdn_ir
model, report = gdn_ir.optimize("model.onnx")
gdn_ir.save(model, "model.opt.onnx")
"""

from gdn_ir.bench import Measured, bench
from gdn_ir.model_file import BadModel, load, save
from gdn_ir.optimizer import optimize
from gdn_ir.pipeline import BadPipeline
from gdn_ir.report import Report
from gdn_ir.verify import VerificationFailed
from gdn_ir.visualizations.render import render

__version__ = "0.1.0"

__all__ = [
    "BadModel",
    "BadPipeline",
    "Measured",
    "Report",
    "VerificationFailed",
    "bench",
    "load",
    "optimize",
    "render",
    "save",
]
