"""Small tasks of this package for lm-eval: their questions, and the YAML files that describe them."""
