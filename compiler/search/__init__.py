"""The single-pass search: candidates of each layer, their measurement, and the choice of variants.

Reference: VELTAIR, section 4.1 and Algorithm 1.
"""
