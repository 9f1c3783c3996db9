"""The server of `evo ui` and its pages."""
