"""`@piece` marks a function of tensors that is compiled on the device. The same piece serves all layers, so each shape compiles once."""
import functools

import torch
import torch._dynamo

_enabled = False


def compile_pieces(on=True):
    global _enabled
    _enabled = on
    torch._dynamo.config.recompile_limit = 64  # a piece meets several shapes, with and without gradients


def piece(function):
    compiled = torch.compile(function, dynamic=False)

    @functools.wraps(function)
    def call(*args):
        return (compiled if _enabled else function)(*args)
    return call


def wide(x):
    """At least float32: norms, gates, softmax and mappings are computed so."""
    return x.float() if x.dtype == torch.bfloat16 else x
