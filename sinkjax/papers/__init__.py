"""Every study of a paper, one function a file: `papers/<paper>/<study>.py`.

A study lists sweeps, claims and figures (`sinkjax.study`); its texts and settings are in `configs/<paper>/<study>.yaml`. A module
whose name starts with an underscore has what several studies of a paper share.
"""
