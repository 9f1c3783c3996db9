"""The report of a comparison: what it holds, its queries, tables, charts and words."""
