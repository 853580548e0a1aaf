"""Studies as values (conditions, measurements and claims), and the one framework that runs them all.

A study is written in the words of `sinkjax.studies.vocabulary`; docs/add-a-study.md shows how.
"""
