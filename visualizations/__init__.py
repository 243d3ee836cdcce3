"""Pictures of dataflows: models to scenes, scenes to Graphviz, Graphviz to files."""
