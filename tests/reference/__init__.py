"""Kernels written down from their definitions, one number at a time: the oracles of the tests."""
