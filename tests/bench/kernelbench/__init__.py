"""Problems of KernelBench from import to a confirmed kernel, judged by KernelBench's own script."""
