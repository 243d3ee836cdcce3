"""The sizes of one gated delta rule."""

from __future__ import annotations

import dataclasses

__all__ = ["SEQ", "GdnSizes"]

SEQ = "S"  # the name of the dimension T where its length is left open


@dataclasses.dataclass(frozen=True)
class GdnSizes:
    """Sizes of one gated delta rule, and what follows from them.

    `heads` are value heads; each of the `key_heads` serves heads / key_heads of them in a row.
    `seq` is None where the model takes any number of tokens. A rule that goes token by token has no
    use for `chunk`.
    Raises ValueError, naming the field and what it may be.
    """

    batch: int
    seq: int | None
    heads: int
    key_heads: int
    head_dim: int
    value_dim: int
    chunk: int = 64

    def __post_init__(self) -> None:
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            if field.name == "seq" and value is None:
                continue
            least = 2 if field.name == "chunk" else 1
            if isinstance(value, bool) or not isinstance(value, int) or value < least:
                raise ValueError(f"{field.name} is {value!r}; it must be an integer >= {least}")
        if self.heads % self.key_heads:
            raise ValueError(
                f"heads is {self.heads}; it must be a multiple of key_heads, {self.key_heads}"
            )

    @property
    def repeats(self) -> int:
        """Value heads that share one key head."""
        return self.heads // self.key_heads

    @property
    def seq_dim(self) -> int | str:
        """T as a dimension of a shape."""
        return SEQ if self.seq is None else self.seq

    @property
    def state_shape(self) -> tuple[int, int, int, int]:
        """[B, Hv, K, V]."""
        return (self.batch, self.heads, self.head_dim, self.value_dim)
