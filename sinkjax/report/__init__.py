"""What a study found: a page, tables, and files that are either whole or absent."""
