"""One folder a paper or a lab, one file a study."""
