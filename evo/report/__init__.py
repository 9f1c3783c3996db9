"""What a run has to say for itself: queries over its store, and how they are shown."""
