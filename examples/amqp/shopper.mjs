// A client of AMQP 1.0 with rhea for Node: it sends, asks, and receives.
// It prints "order: accepted", "price: 3 each" and "bill: 36".
// --8<-- [start:program]
import rhea from "rhea";

const url = new URL(process.argv[2] ?? "amqp://127.0.0.1:5672");
const connection = rhea.connect({
  host: url.hostname,
  port: Number(url.port),
  username: "anonymous", // SASL is required
  reconnect: false,
});
connection.on("connection_error", (context) => console.error(context.connection.error));

const orders = connection.open_sender("orders");
orders.once("sendable", () => orders.send({ body: "12 apples" }));
for (const outcome of ["accepted", "rejected", "released", "modified"]) {
  orders.on(outcome, () => {
    console.log(`order: ${outcome}`);
    ask();
  });
}

function ask() {
  const answers = connection.open_receiver({ source: { dynamic: true } });
  answers.on("receiver_open", () => {
    const prices = connection.open_sender("prices");
    prices.once("sendable", () =>
      prices.send({ body: "apples", reply_to: answers.source.address, correlation_id: "1" }),
    );
  });
  answers.on("message", (context) => {
    console.log(`price: ${context.message.body}`);
    receive();
  });
}

function receive() {
  const bills = connection.open_receiver({ source: "bills", credit_window: 0, autoaccept: false });
  bills.add_credit(1);
  bills.on("message", (context) => {
    console.log(`bill: ${context.message.body.content}`);
    context.delivery.accept();
    connection.close();
  });
}
// --8<-- [end:program]
