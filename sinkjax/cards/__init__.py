"""The sink card of a model: the position, cause, maker, purpose and cost of its sinks.

`card(model)` measures it; each part is one file. Every statement is checked by an intervention in the model itself.
"""
