"""What a decoder says where it is to be asked for less at once."""

import sys

UNLIMITED = sys.maxsize


class TooManyRows(Exception):
    """A batch has more rows than are to be decoded at once."""
