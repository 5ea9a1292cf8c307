"""The probe: what travels to the interpreter that is audited, and runs there.

Standard library only, Python 3.9 or newer, nothing of Sublight outside this folder: `audit.script` joins these files
into one script that is sent on standard input to `PYTHON -`. Nothing is written on the machine and no setting is
changed. `distributions`, `files` and `objects` only read files, so they also serve a folder without an interpreter.

Paths are plain text here: `pathlib` takes several times as long over the ten thousand files of an installation, and
what it offers differs between the versions of Python that the probe meets.
"""
