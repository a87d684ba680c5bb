"""Samplers by name: what the command line accepts, and the settings the paper reports."""

from dsl.presets.names import PRESETS, forms, register, sampler, serving
from dsl.presets.paper import PaperRow, paper_rows

__all__ = ["PRESETS", "PaperRow", "forms", "paper_rows", "register", "sampler", "serving"]
