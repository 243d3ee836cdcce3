"""Pictures of dataflows."""
