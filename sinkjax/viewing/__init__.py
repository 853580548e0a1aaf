"""Maps of a prompt before and after an edit: one viewer in JavaScript for reports, notebooks and the explorer."""
