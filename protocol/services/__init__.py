"""The payloads of Ockam's services: relays, publish/subscribe, discovery.

```python
payload = encode_subscription("screen 1", "weather")  # to `pub_sub`
request = encode_request(ApiRequest(7, "printer", Method.GET))  # to `discovery`
route = relayed(stored, message.onward_route)  # what a relay does
```
"""

from ._api import (
    MAX_REQUEST_ID,
    ApiRequest,
    ApiResponse,
    Method,
    ResponseStatus,
    decode_request,
    decode_response,
    encode_request,
    encode_response,
)
from ._discovery import (
    MAX_METADATA,
    MAX_METADATA_BYTES,
    ServiceInfo,
    decode_metadata,
    decode_service,
    decode_services,
    encode_metadata,
    encode_services,
)
from ._names import (
    DISCOVERY,
    FORWARDING_API,
    FORWARDING_SERVICE,
    MAX_NAME,
    PUB_SUB,
    REGISTER,
    RELAY_PREFIX,
    STATIC_FORWARDING_API,
    STATIC_FORWARDING_SERVICE,
    TOPIC_PREFIX,
    ServiceError,
    check_name,
    decode_subscription,
    decode_text,
    encode_subscription,
    named_address,
    relayed,
)

__all__ = [
    "DISCOVERY",
    "FORWARDING_API",
    "FORWARDING_SERVICE",
    "MAX_METADATA",
    "MAX_METADATA_BYTES",
    "MAX_NAME",
    "MAX_REQUEST_ID",
    "PUB_SUB",
    "REGISTER",
    "RELAY_PREFIX",
    "STATIC_FORWARDING_API",
    "STATIC_FORWARDING_SERVICE",
    "TOPIC_PREFIX",
    "ApiRequest",
    "ApiResponse",
    "Method",
    "ResponseStatus",
    "ServiceError",
    "ServiceInfo",
    "check_name",
    "decode_metadata",
    "decode_request",
    "decode_response",
    "decode_service",
    "decode_services",
    "decode_subscription",
    "decode_text",
    "encode_metadata",
    "encode_request",
    "encode_response",
    "encode_services",
    "encode_subscription",
    "named_address",
    "relayed",
]
