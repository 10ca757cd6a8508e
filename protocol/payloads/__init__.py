"""Codecs: what a payload's bytes mean. Bytes are left as they are; CBOR, JSON and BARE strings are at hand."""

__all__: list[str] = []
