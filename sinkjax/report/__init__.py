"""Reports of a study's results: one HTML page, its tables and figures, and the lines that the terminal shows.

Everything is drawn from a `Section` (`section.py`), which has data and texts but no study, so that any result can be a page.
`page.py` assembles the page, and `figures/` draws with matplotlib.
"""
