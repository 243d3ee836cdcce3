"""Faults that any message of a model may hold: negative dimensions, text that is none."""

from __future__ import annotations

import onnx
from google.protobuf.descriptor import (  # type: ignore[import-untyped,unused-ignore]
    FieldDescriptor,
)
from google.protobuf.message import Message  # type: ignore[import-untyped,unused-ignore]
from onnx import ModelProto

from gdn_ir.file_checks.bad_model import BadModel, quote

_TENSOR_FIELDS = [
    onnx.TensorProto.DESCRIPTOR.fields_by_name[name]
    for name in ("name", "doc_string", "external_data", "metadata_props")
]
# A message, and the trail of the message around it.
_Trail = tuple[Message, "_Trail | None"]


def check_messages(model: ModelProto) -> None:
    """Visit every message once, for the faults that any of them may hold."""
    pending: list[_Trail] = [(model, None)]
    while pending:
        trail = pending.pop()
        message = trail[0]
        kind = type(message)
        if kind is onnx.SparseTensorProto:
            # onnx_ir drops sparse initializers without a word and fails on sparse attributes.
            raise BadModel(f"sparse tensor in {_owner(trail)} is not supported; store it dense")
        if kind is onnx.TensorShapeProto.Dimension and message.dim_value < 0:
            raise BadModel(
                f"negative dimension {message.dim_value} in the shape of {_owner(trail)}; "
                "give an unknown length a dim_param instead"
            )
        if kind is onnx.TensorProto:
            # Not ListFields, which would copy the data, gigabytes of it.
            fields = [(each, getattr(message, each.name)) for each in _TENSOR_FIELDS]
        else:
            fields = message.ListFields()
        for descriptor, value in fields:
            if descriptor.type == FieldDescriptor.TYPE_MESSAGE:
                inner = [value] if isinstance(value, Message) else value
                pending.extend((item, trail) for item in inner)
            elif descriptor.type == FieldDescriptor.TYPE_STRING:
                # The schema is proto2, which does not check text: what is not UTF-8 comes back as
                # bytes, equal to no str, and cannot be written again.
                texts = [value] if isinstance(value, (str, bytes)) else value
                if any(isinstance(text, bytes) for text in texts):
                    raise BadModel(
                        f"{descriptor.name} of {_owner(trail)} is not UTF-8; export it again"
                    )


def _owner(trail: _Trail | None) -> str:
    """The innermost message on the trail that has a name."""
    while trail is not None:
        name = getattr(trail[0], "name", "")
        if name:
            return quote(name)
        trail = trail[1]
    return "the model"
