"""What a study found, for people: a page, tables, and files that are either whole or absent."""
