"""Loads artifacts, runs them and serves them."""
