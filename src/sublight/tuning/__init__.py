"""Whether a machine is set up for decoding: what it says of itself, what is recommended, and what each knob can cost.

Nothing here changes a machine. Every command that is ever run stands in `sources.py`, and each of them only reads.
"""
