"""Reading code without running it: modules, declarations, imports, and what a decision comes to for one target."""
