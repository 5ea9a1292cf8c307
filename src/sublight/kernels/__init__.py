"""Kernels for layers of experts in four-bit formats, their numbers, and the oracle they are held against.

Importing this package imports no torch, so that a machine without it can ask what there would be to run.
"""
