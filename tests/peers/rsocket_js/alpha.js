// A requester, or a destination, made with rsocket-js 1.0.0-alpha. It ends with standard input.
//
//   node alpha.js requester URI SERVICE [FRAGMENT]
//   node alpha.js destination URI SERVICE [FRAGMENT]
//
// `accessOf` in shared.js says what a URI has, `asker` what several are.
// FRAGMENT is the size of frames over which the library cuts payloads into fragments. A requester
// reads lines INTERACTION=ARGUMENT, as those of the other languages, or INTERACTION@SERVICE=ARGUMENT
// for another service. It never pushes metadata: the library throws "Method not implemented."

import { connect as connectSocket } from 'node:net';
import { connect as connectTls } from 'node:tls';

import {
  WellKnownMimeType,
  encodeBearerAuthMetadata,
  encodeCompositeMetadata,
  encodeSimpleAuthMetadata,
} from 'rsocket-composite-metadata';
import { ErrorCodes, RSocketConnector, RSocketError } from 'rsocket-core';
import { TcpClientTransport } from 'rsocket-tcp-client';
import { WebsocketClientTransport } from 'rsocket-websocket-client';
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

const NAME = 'js-alpha';
const [role, uris, service, fragment] = process.argv.slice(2);
const NOTHING_TO_CANCEL = { cancel() {}, onExtension() {} };

function answerTo(text) {
  return { data: Buffer.from(`${text} from ${NAME}`) };
}

const responder = {
  requestResponse(payload, subscriber) {
    const text = received('request_response', payload);
    if (text === 'fail') {
      subscriber.onError(new RSocketError(ErrorCodes.APPLICATION_ERROR, `refused by ${NAME}`));
    } else if (text !== 'hold') {
      subscriber.onNext(answerTo(text), true);
    }
    return NOTHING_TO_CANCEL;
  },

  fireAndForget(payload) {
    received('fire_and_forget', payload);
    return NOTHING_TO_CANCEL;
  },

  requestStream(payload, initialRequestN, subscriber) {
    const { last, element } = counted(received('request_stream', payload));
    let sent = 0;
    const send = (credit) => {
      for (let left = credit; left > 0 && sent < last; left -= 1) {
        sent += 1;
        subscriber.onNext(answerTo(element(sent)), sent === last);
      }
    };
    setImmediate(send, initialRequestN);
    return {
      request: send,
      cancel: () => report({ event: 'canceled', interaction: 'request_stream', sent }),
      onExtension() {},
    };
  },

  // Each element is answered by one: the credit for answers is also that for elements.
  requestChannel(payload, initialRequestN, isCompleted, subscriber) {
    received('request_channel', payload);
    const answer = ({ data }, isLast) => subscriber.onNext(answerTo(data.toString()), isLast);
    setImmediate(() => {
      answer(payload, isCompleted);
      if (!isCompleted && initialRequestN > 1) {
        subscriber.request(initialRequestN - 1);
      }
    });
    return {
      onNext: answer,
      onComplete: () => subscriber.onComplete(),
      onError() {},
      request: (credit) => subscriber.request(credit),
      cancel() {},
      onExtension() {},
    };
  },
};

// --8<-- [start:credentials]
// Return the entry for credentials in composite metadata.
function credentials({ bearer, simple }) {
  const content = bearer ? encodeBearerAuthMetadata(bearer) : encodeSimpleAuthMetadata(...simple);
  return encodeCompositeMetadata([[WellKnownMimeType.MESSAGE_RSOCKET_AUTHENTICATION, content]]);
}

function transport({ protocol, host, port, url, tls }) {
  if (protocol === 'ws' || protocol === 'wss') {
    return new WebsocketClientTransport({ url, wsCreator: (to) => new WebSocket(to, tls) });
  }
  const open = protocol === 'tls' ? connectTls : connectSocket;
  return new TcpClientTransport({
    connectionOptions: { host, port },
    socketCreator: (options) => open({ ...options, ...tls }),
  });
}
// --8<-- [end:credentials]

async function open(access) {
  const rsocket = await connectorTo(access).connect();
  const ended = new Promise((resolve) => {
    rsocket.onClose((error) =>
      resolve({ elements: [], code: error?.code ?? null, message: error?.message ?? 'closed' }),
    );
  });
  return { rsocket, ended };
}

function connectorTo(access) {
  return new RSocketConnector({
    setup: {
      dataMimeType: 'text/plain',
      metadataMimeType: COMPOSITE,
      payload: {
        data: undefined,
        metadata: routeSetup(
          role === 'requester' ? `${NAME}-requester` : service,
          access.bearer || access.simple ? credentials(access) : undefined,
        ),
      },
    },
    fragmentation: fragment ? { maxOutboundFragmentSize: Number(fragment) } : undefined,
    responder,
    transport: transport(access),
  });
}

// Return a subscriber that collects elements, all of them or as many as are wanted.
function collecting(resolve, wanted = Infinity) {
  const elements = [];
  const subscriber = {
    stream: null,
    onNext(payload, isComplete) {
      if (payload) {
        elements.push(payload.data.toString());
      }
      if (elements.length === wanted && !isComplete) {
        subscriber.stream.cancel();
      }
      if (isComplete || elements.length === wanted) {
        resolve({ elements });
      } else if (elements.length % CREDIT === 0) {
        subscriber.stream.request(CREDIT);
      }
    },
    onComplete: () => resolve({ elements }),
    onError: ({ code = null, message }) => resolve({ elements, code, message }),
    onExtension() {},
  };
  return subscriber;
}

function ask(rsocket, interaction, argument, to = service) {
  const payload = (text) => ({ data: Buffer.from(text), metadata: address(to, 'echo') });
  return new Promise((resolve) => {
    const subscriber = collecting(
      resolve,
      interaction === 'first_of_stream' ? Number(argument) : Infinity,
    );
    if (interaction === 'fire_and_forget') {
      rsocket.fireAndForget(payload(argument), subscriber);
    } else if (interaction === 'request_response') {
      rsocket.requestResponse(payload(argument), subscriber);
    } else if (interaction === 'request_stream') {
      subscriber.stream = rsocket.requestStream(payload(argument), CREDIT, subscriber);
    } else if (interaction === 'first_of_stream') {
      subscriber.stream = rsocket.requestStream(payload('endless'), CREDIT, subscriber);
    } else {
      const [first, ...texts] = argument.split(',');
      const send = (credit) => {
        for (let left = credit; left > 0 && texts.length; left -= 1) {
          const text = texts.shift();
          subscriber.stream.onNext({ data: Buffer.from(text) }, texts.length === 0);
        }
      };
      subscriber.request = send;
      subscriber.cancel = () => {};
      const isOnly = texts.length === 0;
      subscriber.stream = rsocket.requestChannel(payload(first), CREDIT, isOnly, subscriber);
    }
  });
}

const asks = await asker(uris, open, ask);
if (role === 'destination') {
  report({ event: 'ready' });
}
await askForLines(asks);
