"""Figures; matplotlib is needed here only (extra ``plot``)."""
