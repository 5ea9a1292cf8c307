"""`python -m sublight` is the same program as `sublight`."""

from sublight.cli.main import main

if __name__ == "__main__":
    main()
