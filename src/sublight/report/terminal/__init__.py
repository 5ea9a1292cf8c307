"""How each block looks on a terminal. These modules import rich, so only a renderer at work imports them."""
