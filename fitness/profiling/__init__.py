"""Profiles of a kernel, and the limits that physics sets it."""
