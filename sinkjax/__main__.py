"""`python -m sinkjax` is the command line."""

import os
import sys

# With -m, Python looks for modules in the current folder first, where other people's files may lie.
if sys.path and sys.path[0] == os.getcwd():  # noqa: PTH109 - pathlib is such a module
    del sys.path[0]

from sinkjax.cli.main import main

sys.exit(main())
