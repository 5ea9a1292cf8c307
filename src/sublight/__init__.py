"""Sublight: how far below the speed of light a model decodes, and where every microsecond of that gap goes."""

__version__ = "0.1.0"
