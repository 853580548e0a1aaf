"""Every study of a paper, one declaration a file: `papers/<paper>/<study>.py`.

A study lists conditions, measurements, claims and figures in the words of `sinkjax.studies.vocabulary`; its texts and settings
are in `configs/<paper>/<study>.yaml`. A module whose name starts with an underscore has measures and calculations that a
paper's studies share.
"""
