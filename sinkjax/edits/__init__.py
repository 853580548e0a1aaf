"""Interventions as data: what to change, where (`site`), and what that does to an array (`apply`)."""
