// Print keys and JSON Web Tokens that the package `jose` has made: {"keys": [...], "tokens": {...}}.
//
//   node jwt.js ISSUER AUDIENCE
//
// One token for each algorithm, "none" for one without a signature, and "HS256 by NAME" for one that
// is signed with the text of a public key, as if that were a shared secret.

import { SignJWT, UnsecuredJWT, exportJWK, exportSPKI, generateKeyPair } from 'jose';

const [issuer, audience] = process.argv.slice(2);
const keys = [];
const tokens = {};

function claimed(token) {
  return token
    .setIssuer(issuer)
    .setAudience(audience)
    .setSubject('billing')
    .setExpirationTime('10 minutes');
}

for (const [alg, options] of [
  ['ES256', {}],
  ['Ed25519', {}],
  ['EdDSA', { crv: 'Ed25519' }],
  ['RS256', {}],
]) {
  const { publicKey, privateKey } = await generateKeyPair(alg, { ...options, extractable: true });
  keys.push({ ...(await exportJWK(publicKey)), kid: alg });
  tokens[alg] = await claimed(new SignJWT({}).setProtectedHeader({ alg, kid: alg })).sign(privateKey);
  const secret = new TextEncoder().encode(await exportSPKI(publicKey));
  tokens[`HS256 by ${alg}`] = await claimed(
    new SignJWT({}).setProtectedHeader({ alg: 'HS256', kid: alg }),
  ).sign(secret);
}
tokens.none = claimed(new UnsecuredJWT({})).encode();
process.stdout.write(`${JSON.stringify({ keys, tokens })}\n`);
