"""Files of configs and results: typed YAML, read strictly, and files that are written whole or not at all."""
