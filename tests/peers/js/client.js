// What both programs share: a connection to the broker over TCP, and lines of JSON.

import { connect as connectSocket } from 'node:net';

import { BrokerClientId, RsocketBrokerClient, Tags } from 'rsocket-broker-client-js';
import { RSocketConnector } from 'rsocket-core';
import { TcpClientTransport } from 'rsocket-tcp-client';

// Print one line of JSON.
export function report(line) {
  process.stdout.write(`${JSON.stringify(line)}\n`);
}

// Say how the program is called, and end it with status 2.
export function refuse(usage) {
  process.stderr.write(`usage: ${usage}\n`);
  process.exit(2);
}

// Connect to the broker as `serviceName` and return what is needed to send requests.
//
// The package's own transports are for browsers; its hooks take one for TCP, and a connector
// with a responder, without which a client cannot be a destination.
export async function connect({ port, serviceName, responder = {} }) {
  const client = new RsocketBrokerClient({
    createTransport: () =>
      new TcpClientTransport({
        connectionOptions: { host: '127.0.0.1', port },
        socketCreator: (options) => connectSocket({ ...options, noDelay: true }),
      }),
    createConnector: (config) => new RSocketConnector({ ...config, responder }),
  });
  const id = new BrokerClientId();
  const rsocket = await client.connect({
    token: '',
    brokerUrl: `tcp://127.0.0.1:${port}`,
    brokerClientId: id,
    brokerClientName: serviceName,
    connectionTags: new Tags(),
  });
  return { client, id, rsocket };
}
