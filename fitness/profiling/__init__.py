"""What a profiler says of a kernel, and what physics allows it."""
