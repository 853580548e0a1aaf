"""The command line: verbs, options and how JAX is started."""
