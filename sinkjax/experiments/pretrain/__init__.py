"""Language models trained from scratch, one thing changed at a time: when does the sink emerge, and which designs prevent it."""
