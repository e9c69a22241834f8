"""python3 -m attentiond check FILE.py:FUNCTION checks an attention kernel, see check.py."""

import sys

if sys.argv[1:2] != ["check"]:
    sys.exit("usage: python3 -m attentiond check FILE.py:FUNCTION, or python3 -m attentiond check --help")
try:
    from attentiond import check
except ModuleNotFoundError as error:
    sys.exit(f"attentiond check: {error}; it needs NumPy")
check.main(sys.argv[2:])
