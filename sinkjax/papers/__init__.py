"""Every study of a paper, one declaration a file: `papers/<paper>/<study>.py`."""
