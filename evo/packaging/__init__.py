"""A kernel to take away: a folder with its code, what launches it, a test, its verdict, licence and lineage."""
