"""Worlds in which NodeSets live through random histories: see `history`."""
