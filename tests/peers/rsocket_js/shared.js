// What the programs of both lines of rsocket-js share: the broker's frames, the way to it, and lines
// of JSON.

import { readFileSync } from 'node:fs';
import { createInterface } from 'node:readline';
import { setTimeout } from 'node:timers/promises';

export const COMPOSITE = 'message/x.rsocket.composite-metadata.v0';
export const CREDIT = 5;

const BROKER_FRAME = 'message/x.rsocket.broker.frame.v0';
const ROUTING = 0x80 | 0x7e;
const RETRY = 50; // milliseconds to the next broker, after one that did not let us connect

// Print one line of JSON.
export function report(line) {
  process.stdout.write(`${JSON.stringify(line)}\n`);
}

function header(kind, flags) {
  return Buffer.from([0, 0, 0, 1, (kind << 2) | (flags >> 8), flags & 0xff]);
}

function text(value) {
  return Buffer.concat([Buffer.from([value.length]), Buffer.from(value)]);
}

function entry(head, content) {
  const size = Buffer.alloc(3);
  size.writeUIntBE(content.length, 0, 3);
  return Buffer.concat([head, size, content]);
}

function brokerEntry(...parts) {
  const mime = Buffer.concat([Buffer.from([BROKER_FRAME.length - 1]), Buffer.from(BROKER_FRAME)]);
  return entry(mime, Buffer.concat(parts));
}

// Return the metadata of SETUP, with the entry for credentials, if there are any, behind.
export function routeSetup(service, credentials = Buffer.alloc(0)) {
  const id = Buffer.alloc(16);
  id.writeUInt32BE(process.pid, 12);
  return Buffer.concat([brokerEntry(header(1, 0), id, text(service)), credentials]);
}

// Return the metadata of a request: where it goes, and its route.
export function address(service, route) {
  const tag = Buffer.concat([Buffer.from([0x81]), text(service)]);
  const frame = brokerEntry(header(5, 0x080), Buffer.alloc(16), tag);
  return Buffer.concat([frame, entry(Buffer.from([ROUTING]), text(route))]);
}

// Return the route in composite metadata.
function routeIn(metadata) {
  for (let at = 0; metadata && at < metadata.length; ) {
    const head = metadata[at] & 0x80 ? 1 : 2 + metadata[at];
    const size = metadata.readUIntBE(at + head, 3);
    const start = at + head + 3;
    if (metadata[at] === ROUTING) {
      return metadata.toString('utf8', start + 1, start + size);
    }
    at = start + size;
  }
  return null;
}

// Report a request, and return its data as text.
export function received(interaction, { data, metadata }) {
  const told = data ? data.toString() : '';
  report({ event: 'received', interaction, data: told, route: routeIn(metadata) });
  return told;
}

// Return the number of the last element of the stream that a text asks for, COUNT or COUNT TEXT, and
// what makes an element of its number: the text is in each.
export function counted(asked) {
  const [count, ...words] = asked.split(' ');
  const last = count === 'endless' ? Infinity : Number(count);
  return { last, element: (number) => [number, ...words].join(' ') };
}

// Return what a URI says: tcp://HOST:PORT or ws://HOST:PORT, with TLS tls:// and wss://. Its query
// has the TLS files, authority=FILE and certificate=FILE with the key in it, and the credentials,
// simple=USER:PASSWORD or bearer=TOKEN.
export function accessOf(uri) {
  const { protocol, hostname: host, port, searchParams } = new URL(uri);
  const access = {
    protocol: protocol.slice(0, -1),
    host,
    port: Number(port),
    url: `${protocol}//${host}:${port}`,
    bearer: searchParams.get('bearer'),
    tls: {},
  };
  if (searchParams.has('simple')) {
    const [user, ...rest] = searchParams.get('simple').split(':');
    access.simple = [user, rest.join(':')];
  }
  if (searchParams.has('authority')) {
    access.tls.ca = readFileSync(searchParams.get('authority'));
  }
  if (searchParams.has('certificate')) {
    access.tls.cert = readFileSync(searchParams.get('certificate'));
    access.tls.key = access.tls.cert;
  }
  return access;
}

// Return what asks by a connection that `open` makes: its `rsocket`, and `ended`, a promise of what is
// told of requests when it has ended. With several brokers, by their URIs with a comma between, the
// next one is connected to then; with one, the program stays without.
export async function asker(uris, open, ask) {
  const brokers = uris.split(',').map(accessOf);
  let connection = null;
  let turn = 0;
  const connect = async () => {
    const made = await open(brokers[turn % brokers.length]);
    made.ended.then(() => {
      made.over = true;
    });
    connection = made;
  };
  try {
    await connect();
  } catch (error) {
    report({ event: 'failed', message: error.message || String(error.code) });
    process.exit(1);
  }
  return async (...words) => {
    while (connection.over && brokers.length > 1) {
      turn += 1;
      await connect().catch(() => setTimeout(RETRY));
    }
    return Promise.race([connection.ended, ask(connection.rsocket, ...words)]);
  };
}

// Ask for what the lines of standard input say, one after the other, until it ends.
export async function askForLines(ask) {
  for await (const line of createInterface({ input: process.stdin })) {
    const at = line.indexOf('=');
    const name = line.slice(0, at);
    const [interaction, to] = name.split('@');
    const outcome = await ask(interaction, line.slice(at + 1), to);
    report({ interaction: name, outcome: 'code' in outcome ? 'failed' : 'completed', ...outcome });
  }
  process.exit(0);
}
