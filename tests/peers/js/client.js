// What both programs share: a connection to the broker, over TCP or WebSocket, with TLS or without,
// and lines of JSON. Node takes further authorities from NODE_EXTRA_CA_CERTS.

import { connect as connectSocket } from 'node:net';
import { connect as connectTls } from 'node:tls';

import { BrokerClientId, RsocketBrokerClient, Tags } from 'rsocket-broker-client-js';
import { RSocketConnector } from 'rsocket-core';
import { TcpClientTransport } from 'rsocket-tcp-client';
import { WebSocket } from 'ws';

// Print one line of JSON.
export function report(line) {
  process.stdout.write(`${JSON.stringify(line)}\n`);
}

// Return what stands before the first equals sign of a word, and what after it.
export function atFirstEqualsSign(word) {
  const [before] = word.split('=', 1);
  return [before, word.slice(before.length + 1)];
}

// Say how the program is called, and end it with status 2.
export function refuse(usage) {
  process.stderr.write(`usage: ${usage}\n`);
  process.exit(2);
}

// Return the options that make the client connect to a URI.
//
// The package's own transports are for browsers. Its hook `createTransport` takes one for TCP; for
// WebSocket its own is used, with a socket that is not a browser's.
function transportOptions(uri) {
  const { protocol, hostname: host, port } = new URL(uri);
  if (protocol === 'ws:' || protocol === 'wss:') {
    return { webSocketFactory: (url) => new WebSocket(url) };
  }
  const open = protocol === 'tls:' ? connectTls : connectSocket;
  return {
    createTransport: () =>
      new TcpClientTransport({
        connectionOptions: { host, port: Number(port) },
        socketCreator: (options) => open({ ...options, noDelay: true }),
      }),
  };
}

// Connect to the broker as `serviceName` and return what is needed to send requests.
//
// A client cannot be a destination without a responder, which only its own connector takes.
export async function connect({ uri, serviceName, responder = {}, tags = [] }) {
  const client = new RsocketBrokerClient({
    ...transportOptions(uri),
    createConnector: (config) => new RSocketConnector({ ...config, responder }),
  });
  const id = new BrokerClientId();
  const rsocket = await client.connect({
    token: '',
    brokerUrl: uri,
    brokerClientId: id,
    brokerClientName: serviceName,
    connectionTags: new Tags(tags),
  });
  return { client, id, rsocket };
}
