"""Graphs evaluated over a prime field, where equal means equal: for recognition and for proof."""
