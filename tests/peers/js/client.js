// What both programs share: a connection to the broker, over TCP or WebSocket, with TLS or without,
// and lines of JSON.
//
// The query of a URI has the TLS files, authority=FILE and certificate=FILE with the key in it, and
// the token, bearer=TEXT. The package has no other credentials.

import { readFileSync } from 'node:fs';
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
  const { protocol, hostname: host, port, searchParams } = uri;
  const file = (name) => searchParams.has(name) && readFileSync(searchParams.get(name));
  const tls = { ca: file('authority') || undefined, cert: file('certificate') || undefined };
  tls.key = tls.cert;
  if (protocol === 'ws:' || protocol === 'wss:') {
    return { webSocketFactory: (url) => new WebSocket(url, tls) };
  }
  const open = protocol === 'tls:' ? connectTls : connectSocket;
  return {
    createTransport: () =>
      new TcpClientTransport({
        connectionOptions: { host, port: Number(port) },
        socketCreator: (options) => open({ ...options, ...tls, noDelay: true }),
      }),
  };
}

// Connect to the broker as `serviceName` and return what is needed to send requests.
//
// A client cannot be a destination without a responder, which only its own connector takes.
export async function connect({ uri: text, serviceName, responder = {}, tags = [] }) {
  const uri = new URL(text);
  const client = new RsocketBrokerClient({
    ...transportOptions(uri),
    createConnector: (config) => new RSocketConnector({ ...config, responder }),
  });
  const id = new BrokerClientId();
  const rsocket = await client.connect({
    token: uri.searchParams.get('bearer') ?? '',
    brokerUrl: `${uri.protocol}//${uri.host}`,
    brokerClientId: id,
    brokerClientName: serviceName,
    connectionTags: new Tags(tags),
  });
  return { client, id, rsocket };
}
