"""A study's results: a page, tables, and files that are either whole or absent."""
