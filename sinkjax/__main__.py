"""`python -m sinkjax` is the command line."""

import sys

from sinkjax.cli import main

sys.exit(main())
