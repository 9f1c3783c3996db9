"""Reports of a run: queries over its store, and their pages, tables and figures."""
