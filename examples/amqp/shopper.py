"""A client of AMQP 1.0 with Proton for Python: it sends, asks, and receives.

It prints:

    order: accepted
    price: 3 each
    bill: 36
"""

from __future__ import annotations

# --8<-- [start:program]
import sys
from typing import Any

from proton import Delivery, Message
from proton.utils import BlockingConnection, SyncRequestResponse

uri = sys.argv[1] if len(sys.argv) > 1 else "amqp://127.0.0.1:5672"
connection = BlockingConnection(uri, timeout=30)

delivery = connection.create_sender("orders").send(Message("12 apples"))
print("order:", "accepted" if delivery.remote_state == Delivery.ACCEPTED else delivery.remote_state)

prices = SyncRequestResponse(connection, "prices")  # with a dynamic address for the answer
print("price:", prices.call(Message("apples")).body)

receiver = connection.create_receiver("bills", credit=1)
message = receiver.receive()
bill: Any = message.body
print("bill:", bytes(bill).decode())
receiver.accept()
connection.close()
# --8<-- [end:program]
