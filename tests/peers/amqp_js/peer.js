// A client of AMQP 1.0 by rhea: node peer.js URI ACTION ADDRESS [ARGUMENT...]
//
// send ADDRESS BODY...        sends each, prints the list of outcomes, with the conditions of rejections
// receive ADDRESS HOW...      gives the credit of one message for each, settles it so, prints the bodies
// drain ADDRESS CREDIT        gives credit, drains, prints the bodies and the credit that is left
// request ADDRESS BODY        sends with a dynamic address for the answer, prints the answer
//
// Prints one line of JSON. USER_NAME and PASSWORD choose PLAIN; CA is a file of authorities for TLS.
// "@N" stands for a body of N bytes; HOW is accept, reject, release or modify.
import fs from "node:fs";
import rhea from "rhea";

const [uri, action, address, ...rest] = process.argv.slice(2);
const url = new URL(uri);
const options = { host: url.hostname, port: Number(url.port), reconnect: false };
if (process.env.USER_NAME) {
  options.username = process.env.USER_NAME;
  options.password = process.env.PASSWORD;
} else {
  options.username = "anonymous";
}
if (url.protocol === "amqps:") {
  options.transport = "tls";
  options.ca = [fs.readFileSync(process.env.CA)];
  options.servername = "localhost";
}

const container = rhea.create_container();
const body = (text) => (text.startsWith("@") ? "x".repeat(Number(text.slice(1))) : text);
const short = (text) => (text.length > 100 ? `@${text.length}` : text);
const text = (message) => {
  const found = message.body?.content ?? message.body;
  return short(Buffer.isBuffer(found) ? found.toString() : String(found));
};
let ended = false;

function end(report) {
  if (!ended) {
    ended = true;
    console.log(JSON.stringify(report));
    connection.close();
  }
}

container.on("connection_error", (context) => end({ error: String(context.connection.get_error()?.condition) }));
container.on("sender_error", (context) => end({ error: context.sender.error?.condition }));
container.on("receiver_error", (context) => end({ error: context.receiver.error?.condition }));
container.on("disconnected", (context) => end({ error: String(context.error ?? "disconnected") }));

const settlers = {
  accept: (delivery) => delivery.accept(),
  reject: (delivery) => delivery.reject({ condition: "shop:closed", description: "come back tomorrow" }),
  release: (delivery) => delivery.release(),
  modify: (delivery) => delivery.modified({ delivery_failed: true, undeliverable_here: false }),
};

const actions = {
  send() {
    const outcomes = [];
    const sender = connection.open_sender({ target: address });
    let next = 0;
    container.on("sendable", () => {
      while (sender.sendable() && next < rest.length) {
        sender.send({ body: body(rest[next++]) });
      }
    });
    for (const name of ["accepted", "rejected", "released", "modified"]) {
      container.on(name, (context) => {
        const error = context.delivery.remote_state?.error;
        // The order of outcomes is that of the deliveries.
        outcomes[context.delivery.id] = error ? `${name} ${error.condition}` : name;
        if (Object.keys(outcomes).length === rest.length) end(outcomes.filter((each) => each));
      });
    }
  },
  receive() {
    const bodies = [];
    const receiver = connection.open_receiver({ source: address, credit_window: 0, autoaccept: false });
    receiver.add_credit(1);
    container.on("message", (context) => {
      bodies.push(text(context.message));
      settlers[rest[bodies.length - 1]](context.delivery);
      // rhea joins dispositions of one turn with the first outcome of them.
      setTimeout(() => (bodies.length < rest.length ? receiver.add_credit(1) : end(bodies)), 5);
    });
  },
  drain() {
    const bodies = [];
    const receiver = connection.open_receiver({ source: address, credit_window: 0 });
    receiver.drain = true;
    receiver.add_credit(Number(rest[0]));
    container.on("message", (context) => bodies.push(text(context.message)));
    container.on("receiver_drained", () => end([...bodies, receiver.credit]));
  },
  request() {
    const sender = connection.open_sender({ target: address });
    const receiver = connection.open_receiver({ source: { dynamic: true } });
    container.on("receiver_open", () => {
      sender.send({ body: rest[0], reply_to: receiver.source.address, correlation_id: "1" });
    });
    container.on("message", (context) => end([text(context.message), context.message.correlation_id]));
  },
};

const connection = container.connect(options);
actions[action]();
