"""Charts of runs: as figures of reports, as interactive pictures, and in notebooks."""
