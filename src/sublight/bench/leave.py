"""A process that ends with the one that started it. Nothing else is imported here."""

import os
import sys
import threading


def leave_with_parent() -> None:
    """End when standard input does: whoever started this holds its other end, and nobody else waits for the GPU."""

    def wait() -> None:
        sys.stdin.buffer.read()
        os._exit(1)

    threading.Thread(target=wait, daemon=True).start()
