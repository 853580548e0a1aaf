"""Config and result files: strict, typed YAML, and atomic writes."""
