"""The driver of a run: it asks strategies, has kernels written and judged, and keeps what becomes of them."""
