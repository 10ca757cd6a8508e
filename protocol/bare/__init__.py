"""BARE encoding of numbers, texts and bytes, as payloads of Ockam's services use it.

```python
payload = encode_string("forward_to_orders") + encode_uint(7)

reader = Reader(payload)
name, number = reader.string(), reader.uint()
reader.finish()
```
"""

from ._bare import BareError, BareReader, encode_data, encode_string, encode_uint

__all__ = ["BareError", "BareReader", "encode_data", "encode_string", "encode_uint"]
