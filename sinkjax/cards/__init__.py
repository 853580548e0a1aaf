"""The sink card of a model: where its sinks are, what they hang on, what makes them, what they are for and what they cost.

`card(model)` measures it; each part is one file. Every statement is checked by an intervention in the model itself.
"""
