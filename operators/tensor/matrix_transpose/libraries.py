"""Libraries' calls for a transposed copy."""

from operators.libraries import call, own

LIBRARIES = (
    own("torch.Tensor.contiguous"),
    call("numpy.ascontiguousarray", lambda x: x.T.copy()),
    call("cupy.ascontiguousarray", lambda x: x.T.copy()),
)
