// Answer the requests that the broker routes to a service, until standard input ends.
//
//   node destination.js URI SERVICE [KEY=TEXT]...
//
// A key is the number of a tag that it registers with, such as 0x86.
// The URI is tcp://HOST:PORT or ws://HOST:PORT, with TLS tls://HOST:PORT or wss://HOST:PORT, and
// with a query as client.js says.
//
//   request/response    "TEXT"  -> "TEXT from javascript"; "fail" -> an error, "hold" -> no answer
//   fire-and-forget     reported, not answered
//   request/stream      "COUNT" -> COUNT elements, "endless" -> elements until canceled
//   request/channel     each "TEXT" -> "TEXT from javascript"
//
// It never sends more than it has credit for. One line of JSON for each event: "ready",
// "received" with the data and the name of the route, "canceled" with the number sent, "closed".

import { WellKnownMimeType, decodeCompositeMetadata, decodeRoutes } from 'rsocket-composite-metadata';
import { ErrorCodes, RSocketError } from 'rsocket-core';

import { atFirstEqualsSign, connect, refuse, report } from './client.js';

const USAGE = 'destination.js URI SERVICE [KEY=TEXT]...';
const ROUTING = WellKnownMimeType.MESSAGE_RSOCKET_ROUTING.string;
const NOTHING_TO_CANCEL = { cancel() {}, onExtension() {} };

function routeIn(metadata) {
  for (const entry of decodeCompositeMetadata(metadata)) {
    if (entry.mimeType === ROUTING) {
      return [...decodeRoutes(entry.content)].join('.');
    }
  }
  return null;
}

function received(interaction, { data, metadata }) {
  const text = data.toString();
  report({ event: 'received', interaction, data: text, route: routeIn(metadata) });
  return text;
}

function answerTo(text) {
  return { data: Buffer.from(`${text} from javascript`) };
}

const responder = {
  requestResponse(payload, subscriber) {
    const text = received('request_response', payload);
    if (text === 'fail') {
      subscriber.onError(new RSocketError(ErrorCodes.APPLICATION_ERROR, 'refused by javascript'));
    } else if (text !== 'hold') {
      subscriber.onNext(answerTo(text), true);
    }
    return NOTHING_TO_CANCEL;
  },

  fireAndForget(payload, subscriber) {
    received('fire_and_forget', payload);
    subscriber.onComplete();
    return NOTHING_TO_CANCEL;
  },

  requestStream(payload, initialRequestN, subscriber) {
    const text = received('request_stream', payload);
    const last = text === 'endless' ? Infinity : Number(text);
    let sent = 0;
    const send = (credit) => {
      for (let left = credit; left > 0 && sent < last; left -= 1) {
        sent += 1;
        subscriber.onNext(answerTo(sent), sent === last);
      }
    };
    // The stream has to be returned before it may send.
    setImmediate(send, initialRequestN);
    return {
      request: send,
      cancel: () => report({ event: 'canceled', interaction: 'request_stream', sent }),
      onExtension() {},
    };
  },

  // Each element is answered by one, so the requester's credit for answers is also ours for
  // elements; the first element came with the request.
  requestChannel(payload, initialRequestN, isCompleted, subscriber) {
    received('request_channel', payload);
    let sent = 0;
    const answer = ({ data }, isLast) => {
      sent += 1;
      subscriber.onNext(answerTo(data.toString()), isLast);
    };
    setImmediate(() => {
      answer(payload, isCompleted);
      if (!isCompleted && initialRequestN > 1) {
        subscriber.request(initialRequestN - 1);
      }
    });
    return {
      onNext: answer,
      onComplete: () => subscriber.onComplete(),
      onError: () => {},
      request: (credit) => subscriber.request(credit),
      cancel: () => report({ event: 'canceled', interaction: 'request_channel', sent }),
      onExtension() {},
    };
  },
};

const [uri, service, ...words] = process.argv.slice(2);
if (!service) {
  refuse(USAGE);
}
const tags = words.map(atFirstEqualsSign).map(([key, text]) => [Number(key), text]);
const { rsocket } = await connect({ uri, serviceName: service, responder, tags });
rsocket.onClose((error) => {
  report({ event: 'closed', message: error?.message });
  process.exit(0);
});
process.stdin.on('end', () => rsocket.close()).resume();
report({ event: 'ready' });
