"""The mutator that chooses values of tunables, and the space that it chooses from."""
