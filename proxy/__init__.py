"""Estimates the interference level at run time."""
