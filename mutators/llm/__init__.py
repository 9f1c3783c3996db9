"""Language models: clients, settings, calls, faults, usage and spending."""
