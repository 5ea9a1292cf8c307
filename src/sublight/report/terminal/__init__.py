"""How each block looks on a terminal. Imported only when there is something to show."""
