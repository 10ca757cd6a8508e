// A requester with a session that is resumed, made with rsocket-js 1.0.0-alpha. It ends with
// standard input.
//
// Each line is `PORT METADATA`, the metadata in hexadecimal digits. It connects to the port of
// 127.0.0.1, makes a request/response, a stream and a channel, and prints what it has received as
// one line.

import { randomBytes } from 'node:crypto';
import { createInterface } from 'node:readline';

import { RSocketConnector } from 'rsocket-core';
import { TcpClientTransport } from 'rsocket-tcp-client';

const PATIENCE = 20000;

function textOf(payload) {
  return payload.data.toString();
}

function received(start) {
  return new Promise((resolve, reject) => {
    const found = [];
    start({
      onNext(payload, isComplete) {
        found.push(textOf(payload));
        if (isComplete) resolve(found.join(','));
      },
      onComplete: () => resolve(found.join(',')),
      onError: reject,
      onExtension() {},
      cancel() {},
    });
  });
}

function channel(socket, metadata) {
  const source = ['a', 'b', 'c'];
  return new Promise((resolve, reject) => {
    const found = [];
    let at = 1;
    const stream = socket.requestChannel({ data: Buffer.from(source[0]), metadata }, 100, false, {
      onNext(payload, isComplete) {
        found.push(textOf(payload));
        if (isComplete) resolve(found.join(','));
      },
      onComplete: () => resolve(found.join(',')),
      onError: reject,
      onExtension() {},
      cancel() {},
      request(n) {
        for (let left = n; left > 0 && at < source.length; left -= 1) {
          at += 1;
          stream.onNext({ data: Buffer.from(source[at - 1]) }, at === source.length);
        }
      },
    });
  });
}

function inTime(promise) {
  return new Promise((resolve, reject) => {
    const timer = setTimeout(() => reject(new Error('no answer in time')), PATIENCE);
    promise.then(resolve, reject).finally(() => clearTimeout(timer));
  });
}

async function run(port, metadata) {
  const connector = new RSocketConnector({
    setup: {
      dataMimeType: 'application/octet-stream',
      metadataMimeType: 'message/x.rsocket.composite-metadata.v0',
      keepAlive: 300,
      lifetime: 15000,
    },
    resume: {
      tokenGenerator: () => randomBytes(16),
      reconnectFunction: () => new Promise((resolve) => setTimeout(resolve, 20)),
    },
    transport: new TcpClientTransport({ connectionOptions: { host: '127.0.0.1', port } }),
  });
  let socket;
  try {
    socket = await inTime(connector.connect());
    const one = { data: Buffer.from('one'), metadata };
    const three = { data: Buffer.from('3'), metadata };
    const answer = await inTime(received((each) => socket.requestResponse(one, each)));
    const elements = await inTime(received((each) => socket.requestStream(three, 100, each)));
    const echoed = await inTime(channel(socket, metadata));
    return `${answer} ${elements} ${echoed}`;
  } catch (error) {
    return `failed: ${error.message}`;
  } finally {
    socket?.close();
  }
}

console.log('ready');
process.on('uncaughtException', (error) => console.error(error));
for await (const line of createInterface({ input: process.stdin })) {
  const [port, metadata] = line.split(' ');
  console.log(await run(Number(port), Buffer.from(metadata, 'hex')));
}
process.exit(0);
