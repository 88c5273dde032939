"""Names the operators that raise for some numbers that they are given: they run though nobody reads what they return.

An example: `F.embedding(tokens, weight)` raises an IndexError for a token that has no row.
"""

from __future__ import annotations

from rekindle.process.torch_internals import Node

_INDEXING = """
    embedding embedding_bag index index_select gather take take_along_dim one_hot bincount repeat_interleave
    index_put index_add index_copy index_fill index_reduce scatter scatter_add scatter_reduce masked_scatter
    max_unpool2d max_unpool3d
"""
_LOSSES = """
    cross_entropy_loss nll_loss nll_loss_nd nll_loss2d multi_margin_loss multilabel_margin_loss binary_cross_entropy ctc_loss
"""
_FACTORIZATIONS = """
    cholesky cholesky_inverse inverse pinverse svd
    linalg_cholesky linalg_inv linalg_pinv linalg_solve linalg_tensorinv linalg_tensorsolve linalg_matrix_power linalg_matrix_rank
    linalg_lu_factor linalg_ldl_factor linalg_lstsq linalg_svd linalg_svdvals
    linalg_eig linalg_eigvals linalg_eigh linalg_eigvalsh
"""
_CHECKING = {f"aten::{name}" for name in f"{_INDEXING} {_LOSSES} {_FACTORIZATIONS}".split()}


def checks_data(node: Node) -> bool:
    """Tells whether an operator of a trace raises for some indices, classes or matrices; `index_put_` does as `index_put`."""
    return node.kind().removesuffix("_") in _CHECKING
