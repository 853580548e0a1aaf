"""Maps of a prompt before and after an edit: one viewer in JavaScript for reports, notebooks and the explorer.

`viewer.js` draws attention and activations and needs neither a network nor a library. `maps.py` encodes the arrays that it
draws, and `records.py` makes such maps of records.
"""
