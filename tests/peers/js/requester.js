// Send requests to a service through the broker, one after the other.
//
//   node requester.js URI SERVICE INTERACTION=ARGUMENT...
//
// The URI is tcp://HOST:PORT or ws://HOST:PORT, with TLS tls://HOST:PORT or wss://HOST:PORT, and
// with a query as client.js says.
//
//   request_response=TEXT     one request, one answer
//   fire_and_forget=TEXT      one request, no answer
//   request_stream=COUNT      a stream of COUNT elements; credit is granted five at a time
//   first_of_stream=COUNT     COUNT elements of a stream without end, which is then canceled
//   request_channel=A,B,C     the elements A, B and C, each answered by one
//   tag:KEY=TEXT              one more tag of all requests; the key is a number, such as 0x86
//
// One line of JSON each: {"interaction", "elements", "outcome"}, where the outcome is "completed"
// or "failed", the latter with "code" and "message".

import { BrokerRoutingType, Tags, WellKnownKey } from 'rsocket-broker-client-js';
import { from, take } from 'rxjs';

import { atFirstEqualsSign, connect, refuse, report } from './client.js';

const USAGE = 'requester.js URI SERVICE INTERACTION=ARGUMENT...';

const TAG = 'tag:';

const INTERACTIONS = {
  request_response: ({ client, rsocket }, text, metadata) =>
    client.requestResponse(rsocket, text, metadata),
  fire_and_forget: ({ client, rsocket }, text, metadata) =>
    client.fireAndForget(rsocket, text, metadata),
  request_stream: ({ client, rsocket }, count, metadata) =>
    client.requestStream(rsocket, count, metadata),
  first_of_stream: ({ client, rsocket }, count, metadata) =>
    client.requestStream(rsocket, 'endless', metadata).pipe(take(Number(count))),
  request_channel: ({ client, rsocket }, texts, metadata) =>
    client.requestChannel(rsocket, from(texts.split(',')), metadata),
};

function addressOf({ client, id }, service, more) {
  const noToken = '';
  const route = 'echo';
  const noMetadataTags = new Tags();
  const tags = new Tags([[WellKnownKey.SERVICE_NAME, service], ...more]);
  return client.addMetadata(noToken, id, route, noMetadataTags, tags, BrokerRoutingType.UNICAST);
}

function outcomeOf(interaction, answers) {
  return new Promise((resolve) => {
    const elements = [];
    answers.subscribe({
      next: (element) => elements.push(element),
      complete: () => resolve({ interaction, elements, outcome: 'completed' }),
      error: ({ code = null, message }) =>
        resolve({ interaction, elements, outcome: 'failed', code, message }),
    });
  });
}

const [uri, service, ...requests] = process.argv.slice(2);
const words = requests.map(atFirstEqualsSign);
const steps = words.filter(([name]) => !name.startsWith(TAG));
const more = words
  .filter(([name]) => name.startsWith(TAG))
  .map(([name, text]) => [Number(name.slice(TAG.length)), text]);
if (!steps.length || steps.some(([interaction, argument]) => !(INTERACTIONS[interaction] && argument))) {
  refuse(USAGE);
}
const connection = await connect({ uri, serviceName: 'javascript-requester' }).catch((error) => {
  report({ event: 'failed', message: error.message });
  process.exit(1);
});
for (const [interaction, argument] of steps) {
  const answers = INTERACTIONS[interaction](connection, argument, addressOf(connection, service, more));
  report(await outcomeOf(interaction, answers));
}
if (steps.at(-1)[0] === 'fire_and_forget') {
  // A connection that ends before the broker has admitted it loses what was sent. Whatever the
  // answer is, it comes behind that.
  const metadata = addressOf(connection, 'onward.management', []);
  await outcomeOf('', INTERACTIONS.request_response(connection, 'statistics', metadata));
}
connection.rsocket.close();
