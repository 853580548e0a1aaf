"""`python -m sinkjax` is the command line."""

import sys

from sinkjax.cli.main import main

sys.exit(main())
