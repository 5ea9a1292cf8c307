"""Quantisation per module: one file a scheme, one question to all of them (`base.Scheme`)."""
