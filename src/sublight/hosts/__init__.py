"""The one door to other machines: everything Sublight knows of a machine it asked with `Host.run`."""
