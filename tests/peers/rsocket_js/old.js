// A requester, or a destination, made with rsocket-js 0.0.27. It ends with standard input.
//
//   node old.js requester URI SERVICE
//   node old.js destination URI SERVICE
//
// `accessOf` in shared.js says what a URI has, `asker` what several are; over TCP this library has no TLS. A requester reads
// lines INTERACTION=ARGUMENT, as those of the other languages, or INTERACTION@SERVICE=ARGUMENT for
// another service. This library sends no fragments.

import core from 'old-core';
import flowable from 'old-flowable';
import tcp from 'old-tcp-client';
import websocket from 'old-websocket-client';
import { WebSocket } from 'ws';

import {
  COMPOSITE,
  CREDIT,
  address,
  askForLines,
  asker,
  counted,
  received,
  report,
  routeSetup,
} from './shared.js';

const {
  BufferEncoders,
  MESSAGE_RSOCKET_AUTHENTICATION,
  RSocketClient,
  encodeBearerAuthMetadata,
  encodeCompositeMetadata,
  encodeSimpleAuthMetadata,
} = core;
const { Flowable, Single } = flowable;
const NAME = 'js-0.0.27';
const [role, uris, service] = process.argv.slice(2);

function answerTo(text) {
  return { data: Buffer.from(`${text} from ${NAME}`), metadata: undefined };
}

// Return a source of payloads that keeps to the credit it is given.
function payloads(makeNext, onCancel = () => {}) {
  return new Flowable((subscriber) => {
    let over = false;
    subscriber.onSubscribe({
      request: (credit) => {
        for (let left = credit; left > 0 && !over; left -= 1) {
          const next = makeNext();
          if (next) {
            subscriber.onNext(next.payload);
          }
          if (!next || next.last) {
            over = true;
            subscriber.onComplete();
          }
        }
      },
      cancel: () => {
        if (!over) {
          over = true;
          onCancel();
        }
      },
    });
  });
}

const responder = {
  requestResponse(payload) {
    const text = received('request_response', payload);
    if (text === 'fail') {
      return Single.error(new Error(`refused by ${NAME}`));
    }
    return text === 'hold' ? Single.never() : Single.of(answerTo(text));
  },

  fireAndForget: (payload) => received('fire_and_forget', payload),

  metadataPush(payload) {
    received('metadata_push', payload);
    return Single.of();
  },

  requestStream(payload) {
    const { last, element } = counted(received('request_stream', payload));
    let sent = 0;
    return payloads(
      () => {
        sent += 1;
        return { payload: answerTo(element(sent)), last: sent === last };
      },
      () => report({ event: 'canceled', interaction: 'request_stream', sent }),
    );
  },

  requestChannel(incoming) {
    let begun = false;
    return incoming.map((payload) => {
      if (!begun) {
        begun = true;
        received('request_channel', payload);
      }
      return answerTo(payload.data.toString());
    });
  },
};

// --8<-- [start:credentials]
// Return the entry for credentials in composite metadata.
function credentials({ bearer, simple }) {
  const content = bearer ? encodeBearerAuthMetadata(bearer) : encodeSimpleAuthMetadata(...simple);
  return encodeCompositeMetadata([[MESSAGE_RSOCKET_AUTHENTICATION, content]]);
}

function transport({ protocol, host, port, url, tls }) {
  if (protocol === 'ws' || protocol === 'wss') {
    const wsCreator = (to) => new WebSocket(to, tls);
    return new websocket.default({ url, wsCreator }, BufferEncoders);
  }
  return new tcp.default({ host, port }, BufferEncoders);
}
// --8<-- [end:credentials]

async function open(access) {
  // A request of a connection that has ended never ends: what ended it is learned here alone.
  let reason = null;
  const rsocket = await clientOf(access, (error) => {
    reason = error;
  }).connect();
  const ended = new Promise((resolve) => {
    rsocket.connectionStatus().subscribe({
      onSubscribe: (subscription) => subscription.request(Number.MAX_SAFE_INTEGER),
      onNext: ({ kind, error }) => {
        if (kind === 'CLOSED' || kind === 'ERROR') {
          // The error handler is called behind this, and an answer that has come is passed on.
          setImmediate(() => {
            const cause = reason ?? error ?? new Error('The connection was closed.');
            resolve({ elements: [], ...failure(cause) });
          });
        }
      },
    });
  });
  return { rsocket, ended };
}

function clientOf(access, errorHandler) {
  return new RSocketClient({
    errorHandler,
    setup: {
      dataMimeType: 'text/plain',
      metadataMimeType: COMPOSITE,
      keepAlive: 10_000,
      lifetime: 60_000,
      payload: {
        data: undefined,
        metadata: routeSetup(
          role === 'requester' ? `${NAME}-requester` : service,
          access.bearer || access.simple ? credentials(access) : undefined,
        ),
      },
    },
    responder,
    transport: transport(access),
  });
}

function failure({ source, message }) {
  return { elements: [], code: source?.code ?? null, message: source?.message ?? message };
}

function collect(source, wanted = Infinity) {
  return new Promise((resolve) => {
    const elements = [];
    let stream;
    source.subscribe({
      onSubscribe: (subscription) => {
        stream = subscription;
        stream.request(CREDIT);
      },
      onNext: ({ data }) => {
        elements.push(data.toString());
        if (elements.length === wanted) {
          stream.cancel();
          resolve({ elements });
        } else if (elements.length % CREDIT === 0) {
          stream.request(CREDIT);
        }
      },
      onComplete: () => resolve({ elements }),
      onError: (error) => resolve({ ...failure(error), elements }),
    });
  });
}

async function ask(rsocket, interaction, argument, to = service) {
  const payload = (text) => ({ data: Buffer.from(text), metadata: address(to, 'echo') });
  switch (interaction) {
    case 'fire_and_forget':
      rsocket.fireAndForget(payload(argument));
      return { elements: [] };
    case 'metadata_push':
      rsocket.metadataPush({ metadata: address(service, argument) }).subscribe({});
      return { elements: [] };
    case 'request_response':
      try {
        const { data } = await rsocket.requestResponse(payload(argument));
        return { elements: [data.toString()] };
      } catch (error) {
        return failure(error);
      }
    case 'request_stream':
      return collect(rsocket.requestStream(payload(argument)));
    case 'first_of_stream':
      return collect(rsocket.requestStream(payload('endless')), Number(argument));
    default: {
      const texts = argument.split(',');
      return collect(
        rsocket.requestChannel(
          payloads(() => ({ payload: payload(texts.shift()), last: texts.length === 0 })),
        ),
      );
    }
  }
}

const asks = await asker(uris, open, ask);
if (role === 'destination') {
  report({ event: 'ready' });
}
await askForLines(asks);
