"""Schemas: what `import delayline.schema` gives."""

from pipeline.client.records import (
    Array,
    Boolean,
    Bytes,
    CustomEnum,
    Double,
    Field,
    Float,
    Integer,
    Long,
    Map,
    Null,
    Record,
    String,
)
from pipeline.client.schema import BytesSchema, JsonSchema, Schema, StringSchema

__all__ = [
    "Array",
    "Boolean",
    "Bytes",
    "BytesSchema",
    "CustomEnum",
    "Double",
    "Field",
    "Float",
    "Integer",
    "JsonSchema",
    "Long",
    "Map",
    "Null",
    "Record",
    "Schema",
    "String",
    "StringSchema",
]
