"""Trials: a small call of an engine's kernel on this machine's GPU, for the last rungs of the audit.

`audit` finds them by name, in the entry-point group `sublight.trials`, and imports nothing of this.
"""
