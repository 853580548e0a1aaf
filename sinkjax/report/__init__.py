"""Reports of a study's results: a page, tables, and files that are written atomically."""
