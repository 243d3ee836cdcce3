"""Pictures that are kept with the source, so that a change of how things are drawn is seen."""
