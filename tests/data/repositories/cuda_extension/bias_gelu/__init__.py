"""A bias and a GELU in one CUDA kernel; this is what users import."""

from bias_gelu.ops import bias_gelu

__all__ = ["bias_gelu"]
