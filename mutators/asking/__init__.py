"""Mutators that ask a language model, and the dialogue with it."""
