// What the programs of both lines of rsocket-js share: the broker's frames, and lines of JSON.

import { createInterface } from 'node:readline';

export const COMPOSITE = 'message/x.rsocket.composite-metadata.v0';
export const CREDIT = 5;

const BROKER_FRAME = 'message/x.rsocket.broker.frame.v0';
const ROUTING = 0x80 | 0x7e;

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

// Return the metadata of SETUP.
export function routeSetup(service) {
  const id = Buffer.alloc(16);
  id.writeUInt32BE(process.pid, 12);
  return brokerEntry(header(1, 0), id, text(service));
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

// Ask for what the lines of standard input say, one after the other, until it ends.
export async function askForLines(ask) {
  for await (const line of createInterface({ input: process.stdin })) {
    const at = line.indexOf('=');
    const interaction = line.slice(0, at);
    const outcome = await ask(interaction, line.slice(at + 1));
    report({ interaction, outcome: 'code' in outcome ? 'failed' : 'completed', ...outcome });
  }
  process.exit(0);
}
