"""Which kernel backends really work here: asked rung by rung, with proof for each answer."""
