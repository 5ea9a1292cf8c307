"""The door of `sublight` and of `python -m sublight`: Ctrl-C ends it without a traceback from the first import on."""

import sys


def main() -> None:
    """Run the program."""
    try:
        from sublight.cli.main import main as run

        run()
    except KeyboardInterrupt:
        sys.exit(130)


if __name__ == "__main__":
    main()
