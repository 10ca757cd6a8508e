// A requester, or a destination, made with rsocket-js 0.0.27. It ends with standard input.
//
//   node old.js requester HOST:PORT SERVICE
//   node old.js destination HOST:PORT SERVICE
//
// A requester reads lines INTERACTION=ARGUMENT, as those of the other languages. This library
// sends no fragments.

import core from 'old-core';
import flowable from 'old-flowable';
import tcp from 'old-tcp-client';

import { COMPOSITE, CREDIT, address, askForLines, received, report, routeSetup } from './shared.js';

const { BufferEncoders, RSocketClient } = core;
const { Flowable, Single } = flowable;
const NAME = 'js-0.0.27';
const [role, place, service] = process.argv.slice(2);

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
    const text = received('request_stream', payload);
    const last = text === 'endless' ? Infinity : Number(text);
    let sent = 0;
    return payloads(
      () => {
        sent += 1;
        return { payload: answerTo(sent), last: sent === last };
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

const [host, port] = place.split(':');
const client = new RSocketClient({
  setup: {
    dataMimeType: 'text/plain',
    metadataMimeType: COMPOSITE,
    keepAlive: 10_000,
    lifetime: 60_000,
    payload: {
      data: undefined,
      metadata: routeSetup(role === 'requester' ? `${NAME}-requester` : service),
    },
  },
  responder,
  transport: new tcp.default({ host, port: Number(port) }, BufferEncoders),
});

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

async function ask(rsocket, interaction, argument) {
  const payload = (text) => ({ data: Buffer.from(text), metadata: address(service, 'echo') });
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

const rsocket = await client.connect();
if (role === 'destination') {
  report({ event: 'ready' });
}
await askForLines((interaction, argument) => ask(rsocket, interaction, argument));
