"""Low-precision formats in plain torch: quantise, pack, lay out, and back again, bit for bit.

Modules here import torch at their top, so nothing that starts without torch imports them at its own.
"""
